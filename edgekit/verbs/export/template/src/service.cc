#include "service.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>


#include "model.h"
#include "samples.h"

namespace app {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void Fail(const std::string& doing) {
  throw std::system_error(errno, std::generic_category(), doing);
}

class Descriptor {
 public:
  Descriptor(int number, const char* doing) : number_(number) {
    if (number < 0) Fail(doing);
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

const std::string kFirst = ".input-0";

bool IsPlain(const std::string& name) {  // the log shows it
  return !name.empty() && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

// The file that completes a request.
bool IsRequest(const std::string& name) {
  return IsPlain(name) && (model::kInputs.size() == 1 || name.find(kFirst) != std::string::npos);
}

// The request's files, and the name of its answer.
std::vector<std::string> FilesOf(const std::string& request) {
  std::vector<std::string> files = {request};
  size_t at = request.find(kFirst);
  for (size_t i = 1; i < model::kInputs.size(); ++i) {
    files.push_back(request.substr(0, at) + ".input-" + std::to_string(i) +
                    request.substr(at + kFirst.size()));
  }
  return files;
}

std::string AnswerTo(const std::string& request) {
  return model::kInputs.size() == 1 ? request : request.substr(0, request.find(kFirst));
}

std::vector<std::string> RequestsIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    if (IsRequest(name) && entry.symlink_status().type() == fs::file_type::regular) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Service {
 public:
  Service(Predictor& predictor, const fs::path& folder, size_t keep, const app_frame* frame)
      : predictor_(predictor),
        in_(folder / "in"),
        work_(folder / "work"),
        out_(folder / "out"),
        keep_(keep),
        frame_(frame),
        arrivals_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK), "watch for requests"),
        stop_(Stop(), "wait for signals") {
    for (const fs::path& made : {in_, work_, out_}) fs::create_directories(made);
    if (inotify_add_watch(arrivals_.number(), in_.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) {
      Fail("watch " + in_.string());
    }
  }

  void Run() {
    for (const auto& entry : fs::directory_iterator(out_)) {
      std::string name = entry.path().filename();
      if (IsPlain(name)) Remember(name);
    }
    for (const std::string& name : RequestsIn(work_)) {
      Refuse(name, "the program ended while it worked on this");
    }
    std::printf("waiting for requests in %s\n", in_.c_str());
    std::vector<std::string> names = RequestsIn(in_);
    while (!Stopping(names.empty())) {
      if (!names.empty()) {
        Answer(names.front());
        names.erase(names.begin());
      }
      for (const std::string& name : Arrived()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    std::puts("stopped");
  }

 private:
  static int Stop() {
    sigset_t signals = StopSignals();
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  // Sleeps until there is something to do, if there is nothing.
  bool Stopping(bool wait) {
    pollfd watched[] = {{stop_.number(), POLLIN, 0}, {arrivals_.number(), POLLIN, 0}};
    if (poll(watched, 2, wait ? -1 : 0) < 0 && errno != EINTR) Fail("wait for requests");
    return watched[0].revents != 0;
  }

  std::vector<std::string> Arrived() {
    std::vector<std::string> names;
    alignas(inotify_event) char buffer[1 << 14];
    ssize_t length;
    while ((length = read(arrivals_.number(), buffer, sizeof buffer)) > 0) {
      for (const char* at = buffer; at < buffer + length;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        if (event->mask & IN_Q_OVERFLOW) return RequestsIn(in_);
        if (event->len > 0 && IsRequest(event->name)) names.push_back(event->name);
        at += sizeof(inotify_event) + event->len;
      }
    }
    return names;
  }

  void Answer(const std::string& name) {
    if (fs::symlink_status(in_ / name).type() != fs::file_type::regular) return;  // taken back
    try {
      Paths files;
      for (const std::string& file : FilesOf(name)) {
        files.push_back(work_ / file);
        fs::rename(in_ / file, files.back());
      }
      Request request = ReadInputs(files, frame_);
      auto started = std::chrono::steady_clock::now();
      Tensors outputs = predictor_.Run(request.inputs);
      std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - started;
      WriteOutputs(Begin(name), outputs);
      WriteMeaning(name, request, outputs);
      Publish(name);
      for (size_t i = 0; i < outputs.size(); ++i) {
        std::printf("%s: %.2f ms, %s\n", name.c_str(), took.count(), Describe(i, outputs[i]).c_str());
      }
    } catch (const std::exception& error) {
      Refuse(name, error.what());
    }
  }

  void WriteMeaning(const std::string& name, const Request& request, const Tensors& outputs) {
    if (app_means.task == APP_NOTHING) return;
    FILE* text = std::fopen((Unfinished(name) / "found.txt").c_str(), "w");
    if (text == nullptr) Fail("write found.txt");
    Explain(request, outputs, {text, stdout}, {});
    if (std::fclose(text) != 0) Fail("write found.txt");
  }

  void Refuse(const std::string& name, const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), why.c_str());
    std::ofstream text(Begin(name) / "error.txt");
    text << why << '\n';
    text.close();
    if (!text) throw std::runtime_error("cannot write to " + out_.string());
    Publish(name);
  }

  fs::path Begin(const std::string& name) {
    fs::path unfinished = Unfinished(name);
    fs::remove_all(unfinished);
    fs::create_directory(unfinished);
    return unfinished;
  }

  fs::path Unfinished(const std::string& name) { return out_ / ("." + AnswerTo(name)); }

  void Publish(const std::string& name) {
    std::string answer = AnswerTo(name);
    fs::remove_all(out_ / answer);
    fs::rename(Unfinished(name), out_ / answer);
    for (const std::string& file : FilesOf(name)) fs::remove(work_ / file);
    Remember(answer);
  }

  void Remember(const std::string& answer) {
    kept_.erase(std::remove(kept_.begin(), kept_.end(), answer), kept_.end());
    kept_.push_back(answer);
    for (; kept_.size() > keep_; kept_.pop_front()) fs::remove_all(out_ / kept_.front());
  }

  Predictor& predictor_;
  fs::path in_, work_, out_;
  size_t keep_;
  const app_frame* frame_;
  Descriptor arrivals_, stop_;
  std::deque<std::string> kept_;
};

}  // namespace

void BlockSignals() {
  sigset_t signals = StopSignals();
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) Fail("block signals");
}

void Serve(Predictor& predictor, const fs::path& folder, size_t keep, const app_frame* frame) {
  Service(predictor, folder, keep, frame).Run();
}

}  // namespace app
