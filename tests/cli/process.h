// Runs the built command line and keeps what it says.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace paceline::testing {

struct ProcessResult {
  int code = -1;  // Exit code, or 128 + signal.
  std::string out;
  std::string error;
};

// A running `paceline` with the given arguments and standard input.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments, const std::string& input = "") {
    int in[2], out[2], error[2];
    if (pipe(in) != 0 || pipe(out) != 0 || pipe(error) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      dup2(error[1], 2);
      for (int* ends : {in, out, error}) close(ends[0]), close(ends[1]);
      unsetenv("PACELINE_MODEL");
      setenv("OMP_NUM_THREADS", "1", 1);
      arguments.insert(arguments.begin(), PACELINE_BINARY);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(PACELINE_BINARY, argv.data());
      _exit(127);
    }
    close(in[0]), close(out[1]), close(error[1]);
    // Test inputs are shorter than a pipe's buffer.
    if (write(in[1], input.data(), input.size()) < 0) throw std::runtime_error("write");
    close(in[1]);
    out_ = out[0];
    error_ = error[0];
  }

  // Waits for the first bytes of standard output.
  void AwaitOutput() {
    char buffer[4096];
    const ssize_t count = read(out_, buffer, sizeof(buffer));
    if (count > 0) result_.out.append(buffer, count);
  }

  void CloseOutput() {
    close(out_);
    out_ = -1;
  }

  void Signal(int number) { kill(pid_, number); }

  // Reads everything and waits for the end.
  ProcessResult Wait() {
    while (out_ >= 0 || error_ >= 0) {
      pollfd ends[2] = {{out_, POLLIN, 0}, {error_, POLLIN, 0}};
      if (poll(ends, 2, -1) < 0) break;
      if (ends[0].revents != 0) Take(out_, result_.out);
      if (ends[1].revents != 0) Take(error_, result_.error);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
  static void Take(int& end, std::string& text) {
    char buffer[4096];
    const ssize_t count = read(end, buffer, sizeof(buffer));
    if (count > 0) {
      text.append(buffer, count);
    } else {
      close(end);
      end = -1;
    }
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int error_ = -1;
  ProcessResult result_;
};

inline ProcessResult RunCli(std::vector<std::string> arguments, const std::string& input = "") {
  return Process(std::move(arguments), input).Wait();
}

}  // namespace paceline::testing
