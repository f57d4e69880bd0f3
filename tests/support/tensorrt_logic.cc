// The TensorRT runner's own logic, without TensorRT: one promise a function, called by its name.
#include <dirent.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>

#include "edgekit_engine_cache.h"
#include "edgekit_engine_words.h"
#include "edgekit_progress.h"
#include "edgekit_staging.h"

using namespace edgekit::tensorrt;

namespace {

std::string folder;  // empty at first, and ours alone

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

EngineKey some_key() {
  return EngineKey{"region_1", 7, 100300, "Orin (nvgpu)", 8, 7, "fp16", 1 << 28, -1, 3};
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

size_t files_in(const std::string& place) {
  size_t count = 0;
  DIR* listing = opendir(place.c_str());
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    count += name != "." && name != "..";
  }
  closedir(listing);
  return count;
}

struct Plan {
  std::string bytes;
  explicit operator bool() const { return !bytes.empty(); }
};

struct FakeMaker {
  int built = 0;
  bool fits = true;  // what was built before
  bool works = true;
  bool loads = true;  // anything

  std::string build() {
    ++built;
    if (!works) throw std::runtime_error("no engine");
    return "engine " + std::to_string(built);
  }
  Plan load(const std::string& bytes) { return {loads && (fits || built) ? bytes : ""}; }
  void fail(const std::string& doing) { throw std::runtime_error(doing); }
  void note(const std::string& text) { notes += text + "\n"; }
  std::string notes;
};

std::string run(FakeMaker maker, int builds, const EngineKey& key = some_key()) {
  const Plan plan = cached_engine<Plan>(key, folder, maker);
  require(maker.built == builds, "it was built " + std::to_string(maker.built) + " times");
  return plan.bytes;
}

void every_part_of_the_key_names_another_file() {
  std::vector<EngineKey> keys(11, some_key());
  keys[1].region = "region_2";
  keys[2].model_hash = 8;
  keys[3].tensorrt = 100301;
  keys[4].gpu = "Thor";
  keys[5].sm_major = 9;
  keys[6].sm_minor = 0;
  keys[7].precision = "fp32";
  keys[8].workspace_bytes = 1;
  keys[9].dla_core = 0;
  keys[10].builder_level = 5;
  std::map<std::string, int> names;
  for (const EngineKey& key : keys) ++names[key.file()];
  require(names.size() == keys.size(), "two keys have one file");
  require(some_key().file() == keys[0].file(), "one key has two files");
  require(keys[1].timing_file() == keys[7].timing_file(), "times are not shared among regions");
  require(keys[0].timing_file() != keys[4].timing_file(), "times are shared among GPUs");
}

void an_engine_is_built_once() {
  require(run({}, 1) == "engine 1", "it is another");
  require(run({}, 0) == "engine 1", "it came back changed");
  require(files_in(folder) == 1, "something else was left");
}

void another_version_is_built_beside_it() {
  EngineKey newer = some_key();
  newer.tensorrt = 101303;
  run({}, 1);
  run({}, 1, newer);
  run({}, 0);
  run({}, 0, newer);
}

void every_damage_is_found() {
  run({}, 1);
  const std::string path = folder + "/" + some_key().file(), whole = bytes_of(path);
  std::string content = "untouched";
  const auto found = [&] { return read_engine_file(path, some_key().text(), &content); };
  for (size_t length = 0; length < whole.size(); ++length) {
    put(path, whole.substr(0, length));
    require(found() == Found::kDamaged, "cut off at " + std::to_string(length));
  }
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] ^= 0x10;
    put(path, changed);
    require(found() != Found::kWhole, "changed at " + std::to_string(place));
  }
  put(path, whole + "x");
  require(found() == Found::kDamaged, "with more behind it");
  require(content == "untouched", "something of it was handed out");
}

void a_damaged_engine_is_built_again() {
  run({}, 1);
  const std::string path = folder + "/" + some_key().file();
  put(path, bytes_of(path) + "x");
  run({}, 1);
  run({}, 0);
}

void an_engine_that_does_not_load_is_built_again() {
  run({}, 1);
  FakeMaker maker;
  maker.fits = false;
  run(maker, 1);
}

void what_was_made_for_another_key_is_not_taken() {
  run({}, 1);
  std::string content;
  const std::string path = folder + "/" + some_key().file();
  require(read_engine_file(path, "another key", &content) == Found::kOther, "it was taken");
  require(content.empty(), "it was handed out");
}

void a_link_is_not_followed() {
  run({}, 1);
  const std::string path = folder + "/" + some_key().file(), other = folder + "/elsewhere";
  require(std::rename(path.c_str(), other.c_str()) == 0, "rename");
  require(symlink(other.c_str(), path.c_str()) == 0, "link");
  std::string content;
  require(read_engine_file(path, some_key().text(), &content) == Found::kNothing, "it was");
}

void a_build_that_fails_leaves_nothing() {
  FakeMaker maker;
  maker.works = false;
  try {
    cached_engine<Plan>(some_key(), folder, maker);
  } catch (const std::runtime_error&) {
    require(files_in(folder) == 0, "a file was left");
    return;
  }
  require(false, "it did not fail");
}

void an_engine_that_never_loads_is_an_error() {
  FakeMaker maker;
  maker.loads = false;
  try {
    cached_engine<Plan>(some_key(), folder, maker);
  } catch (const std::runtime_error& error) {
    require(std::string(error.what()).find("load") != std::string::npos, error.what());
    return;
  }
  require(false, "it did not fail");
}

void without_a_place_for_it_an_engine_still_runs() {
  put(folder + "/file", "");
  for (const std::string& place : {std::string(), folder + "/file/below"}) {
    FakeMaker maker;
    require(cached_engine<Plan>(some_key(), place, maker).bytes == "engine 1", "it did not run");
    require(maker.notes.find("can't be kept") != std::string::npos, "nobody was told");
  }
}

void the_cache_is_where_the_user_says() {
  setenv("HOME", "/home/me", 1);
  unsetenv("XDG_CACHE_HOME");
  unsetenv("EDGEKIT_TENSORRT_CACHE");
  require(cache_folder() == "/home/me/.cache/edgekit/tensorrt", "by home");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  require(cache_folder() == "/cache/edgekit/tensorrt", "by XDG");
  setenv("EDGEKIT_TENSORRT_CACHE", "/engines", 1);
  require(cache_folder() == "/engines", "by our own");
  setenv("EDGEKIT_TENSORRT_CACHE", "engines", 1);
  require(cache_folder() == "/cache/edgekit/tensorrt", "by our own, relative");
  setenv("XDG_CACHE_HOME", ".cache", 1);
  require(cache_folder() == "/home/me/.cache/edgekit/tensorrt", "by XDG, relative");
  for (const char* name : {"HOME", "XDG_CACHE_HOME", "EDGEKIT_TENSORRT_CACHE"}) unsetenv(name);
  require(cache_folder().empty(), "without any");
}

void errors_say_what_to_do() {
  Messages messages;
  require(explained("start", messages.errors()) == "TensorRT could not start, and did not say why",
          "without a message");
  messages.error("[graph.cpp] building failed\n");
  messages.error("Error Code 2: OutOfMemory (no further information)");
  const std::string text = explained("build the engine", messages.errors());
  require(text.find("building failed") != std::string::npos, "the first error is not told");
  require(text.find("workspace_mb") != std::string::npos, "there is no hint");
  require(text.find('\n') == std::string::npos, "it has several lines");
  require(hint_for("No importer registered for op: Foo").find("never") != std::string::npos, "op");
  require(hint_for("DLA validation failed").find("dla_core") != std::string::npos, "DLA");
  require(hint_for("cudaError 35: CUDA driver version is insufficient").find("driver") == 12, "CUDA");
  require(hint_for("something else").empty(), "a hint out of nothing");
}

void only_the_last_errors_are_kept() {
  Messages messages;
  for (int i = 0; i < 100; ++i) messages.error(std::to_string(i) + std::string(5000, 'x'));
  require(messages.errors().size() == 8, "how many");
  require(messages.errors().back().compare(0, 2, "99") == 0, "which");
  require(messages.errors().back().size() <= 400, "how long");
}

struct Counted {
  static int asked, held, fail_at;
  static void* take(size_t size) {
    if (++asked == fail_at) throw std::runtime_error("no memory");
    ++held;
    return ::operator new(size);
  }
  static void give(void* memory) {
    --held;
    ::operator delete(memory);
  }
  static void* host(size_t size) { return take(size); }
  static void* device(size_t size) { return take(size); }
  static void free_host(void* memory) { give(memory); }
  static void free_device(void* memory) { give(memory); }
};
int Counted::asked = 0, Counted::held = 0, Counted::fail_at = 0;

void buffers_are_asked_for_once_and_given_back() {
  {
    Staging<Counted> staging({16, 64, 8});
    require(Counted::asked == 6 && Counted::held == 6, "how many");
    for (int call = 0; call < 10; ++call)
      for (size_t i = 0; i < staging.count(); ++i)
        require(staging[i].host != nullptr && staging[i].device != nullptr, "which");
    require(Counted::asked == 6 && staging[1].size == 64, "again");
  }
  require(Counted::held == 0, "some were kept");
}

void buffers_are_given_back_where_memory_ends() {
  for (int fail_at = 1; fail_at <= 4; ++fail_at) {
    Counted::asked = 0;
    Counted::fail_at = fail_at;
    try {
      Staging<Counted> staging({16, 64});
      require(false, "it did not fail");
    } catch (const std::runtime_error& error) {
      require(std::string(error.what()) == "no memory", error.what());
    }
    require(Counted::held == 0, "some were kept");
  }
}

struct Told {
  std::vector<std::string> lines;
  double now = 0;
  Progress progress{"r", [this](const std::string& text) { lines.push_back(text); },
                    [this] { return now += 2; }};
};

void progress_is_told_in_percent_of_all_there_is_to_do() {
  Told told;
  told.progress.start("Building", "", 4);
  told.progress.step("Building", 0);
  told.progress.start("Timing", "Building", 2);
  told.progress.step("Timing", 0);
  told.progress.finish("Timing");
  told.progress.step("Building", 1);
  const std::vector<std::string> wanted = {"r: 0 %, Building", "r: 25 %, Building",
                                           "r: 25 %, Timing", "r: 37 %, Timing",
                                           "r: 50 %, Building"};
  for (size_t i = 0; i < wanted.size(); ++i)
    require(told.lines.at(i) == wanted[i], told.lines.at(i) + " is not " + wanted[i]);
}

void what_is_done_stays_done() {
  Told told;
  told.progress.start("One", "", 2);
  told.progress.step("One", 1);
  told.progress.finish("One");
  told.progress.start("Two", "", 10);
  told.progress.step("Two", 0);
  require(told.lines.back() == "r: 100 %, Two", told.lines.back());
  told.progress.step("Nobody", 3);
  told.progress.finish("Nobody");
  told.progress.start("Odd", "", 0);
  told.progress.step("Odd", 7);
  require(told.lines.back().find("100 %") != std::string::npos, told.lines.back());
}

void phases_that_name_each_other_end() {
  Told told;
  told.progress.start("One", "Two", 1);
  told.progress.start("Two", "One", 1);
  told.progress.start("Three", "Three", 1);
  require(told.lines.size() == 3, "how many");
}

void lines_of_a_log_are_a_sign_of_life_where_there_are_no_phases() {
  Told told;
  told.progress.line(std::string(500, 'x'));
  require(told.lines.back() == "r: " + std::string(100, 'x'), told.lines.back());
  told.progress.start("Building", "", 2);
  told.progress.line("a detail");
  require(told.lines.back() == "r: 0 %, Building", told.lines.back());
}

void progress_is_not_told_more_often_than_once_a_second() {
  double now = 10;
  size_t told = 0;
  Progress progress("r", [&](const std::string&) { ++told; }, [&] { return now; });
  progress.start("Building", "", 1000);
  for (int step = 0; step < 500; ++step) progress.step("Building", step);
  require(told == 1, "again at once");
  now += 1;
  progress.step("Building", 500);
  require(told == 2, "not after a second");
}

void integers_are_lengthened_with_their_sign() {
  const int32_t given[] = {0, 7, -1, 2147483647, -2147483647 - 1};
  int64_t wanted[6] = {9, 9, 9, 9, 9, 9};
  lengthen(given, wanted, 5 * sizeof(int64_t));
  for (int i = 0; i < 5; ++i) require(wanted[i] == given[i], std::to_string(wanted[i]));
  require(wanted[5] == 9, "it wrote behind the end");
}

#define PROMISE(name) {#name, name}
const std::map<std::string, std::function<void()>> promises = {
    PROMISE(every_part_of_the_key_names_another_file),
    PROMISE(an_engine_is_built_once),
    PROMISE(another_version_is_built_beside_it),
    PROMISE(every_damage_is_found),
    PROMISE(a_damaged_engine_is_built_again),
    PROMISE(an_engine_that_does_not_load_is_built_again),
    PROMISE(what_was_made_for_another_key_is_not_taken),
    PROMISE(a_link_is_not_followed),
    PROMISE(a_build_that_fails_leaves_nothing),
    PROMISE(an_engine_that_never_loads_is_an_error),
    PROMISE(without_a_place_for_it_an_engine_still_runs),
    PROMISE(the_cache_is_where_the_user_says),
    PROMISE(errors_say_what_to_do),
    PROMISE(only_the_last_errors_are_kept),
    PROMISE(buffers_are_asked_for_once_and_given_back),
    PROMISE(buffers_are_given_back_where_memory_ends),
    PROMISE(integers_are_lengthened_with_their_sign),
    PROMISE(progress_is_told_in_percent_of_all_there_is_to_do),
    PROMISE(what_is_done_stays_done),
    PROMISE(phases_that_name_each_other_end),
    PROMISE(lines_of_a_log_are_a_sign_of_life_where_there_are_no_phases),
    PROMISE(progress_is_not_told_more_often_than_once_a_second),
};

}  // namespace

// Without arguments: the promises by name. Otherwise one of them, and a folder for it.
int main(int count, char** words) {
  if (count != 3) {
    for (const auto& promise : promises) std::printf("%s\n", promise.first.c_str());
    return 0;
  }
  folder = words[2];
  try {
    promises.at(words[1])();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
