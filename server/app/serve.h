// `serve`: loads a model behind an open port, serves until a signal, drains and returns.
#pragma once

#include <chrono>

#include "server/app/local_model.h"
#include "server/app/log.h"
#include "server/app/service.h"

namespace millrace::app {

struct ServeOptions {
  LocalModelOptions model;
  ServiceOptions service;
  double drain_delay_seconds = 0.0;        // not ready but still accepting
  double shutdown_timeout_seconds = 30.0;  // for running requests to finish
  LogLevel log_level = LogLevel::info;
  LogFormat log_format = LogFormat::json;
};

// Main thread. The exit code: 0 after a drain, 1 if the port or the model cannot be had.
int run_serve(const ServeOptions& options);

}  // namespace millrace::app
