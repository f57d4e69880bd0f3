/* EEMBC's EnergyRunner asks, one command at a time, in text: docs/mlperf.md. */
#include <string.h>

#include "board.h"
#include "models.h"

#define MOST_COMMAND 80u
/* What the framework knows a firmware of MLPerf Tiny by. */
#define VERSION "ULPMark for tinyML Firmware V0.0.1"
/* CPUIDs of QEMU's Cortex-M3 and Cortex-M4, which no chip has. */
#define QEMU_M3 0x410FC231u
#define QEMU_M4 0x410FC240u

extern uint8_t ek_spare_start[], ek_spare_end[];

static uint32_t clock_hz;
static uint64_t cycles;
/* What `db` loads: bytes announced, and bytes taken. */
static uint32_t announced, loaded;
static uint8_t word[4];

static void say(const char *text) {
  while (*text != '\0') {
    board_write((uint8_t)*text++);
  }
}

static void say_number(uint64_t number) {
  char digits[21];
  uint32_t at = sizeof digits - 1u;
  digits[at] = '\0';
  do {
    digits[--at] = (char)('0' + (uint32_t)(number % 10u));
    number /= 10u;
  } while (number != 0u);
  say(digits + at);
}

static void say_about(const char *before, uint32_t number, const char *after) {
  say(before);
  say_number(number);
  say(after);
}

/* With three decimals, as the framework reads them. */
static void say_real(float value) {
  if (value < 0.0f) {
    say("-");
    value = -value;
  }
  if (!(value < 4.0e6f)) { /* also NaN, which no framework reads */
    say(value >= 4.0e6f ? "4000000.000" : "nan");
    return;
  }
  uint32_t thousandths = (uint32_t)(value * 1000.0f + 0.5f);
  say_number(thousandths / 1000u);
  say(".");
  for (uint32_t unit = 100u; unit != 0u; unit /= 10u) {
    board_write((uint8_t)('0' + thousandths / unit % 10u));
  }
}

static uint64_t microseconds(void) {
  cycles += counter_stop();
  counter_start();
  return cycles / clock_hz * 1000000u + cycles % clock_hz * 1000000u / clock_hz;
}

static void say_time(void) {
  uint64_t now = microseconds();
  say("m-lap-us-");
  say_number(now);
  say("\r\n");
}

static uint32_t size_of(const ek_tensor *tensor) {
  const char *dtype = tensor->dtype;
  const char *bits = dtype + strlen(dtype) - 1u;
  return *bits == '8' ? 1u : *bits == '6' ? 2u : *bits == '4' ? 8u : *dtype == 'b' ? 1u : 4u;
}

/* The input outside of the arena, where there is room: a run overwrites the arena. */
static uint8_t *kept_input(void) {
  const ek_tensor *input = &ek_models[0].input[0];
  uint32_t room = (uint32_t)((uintptr_t)ek_spare_end - (uintptr_t)ek_spare_start);
  return input->bytes <= room ? ek_spare_start : ek_arena + input->offset;
}

static int32_t nearest(float value) { return (int32_t)(value < 0.0f ? value - 0.5f : value + 0.5f); }

/* Bytes of the tensor; or floats, which are quantised; or pixels from 0 to 255 of a model whose
 * zero point says that it takes them from -128 on. */
static void take_byte(uint8_t byte) {
  const ek_tensor *input = &ek_models[0].input[0];
  uint8_t *place = kept_input();
  int is_int8 = strcmp(input->dtype, "int8") == 0;
  if (loaded >= announced) {
    return; /* what follows the announced bytes is disregarded */
  }
  if (announced == input->bytes) {
    place[loaded] = is_int8 && input->zero_point == -128 ? (uint8_t)(byte ^ 0x80u) : byte;
  } else {
    word[loaded % 4u] = byte;
    if (loaded % 4u == 3u) {
      float value;
      memcpy(&value, word, sizeof value);
      float steps = value / input->scale + (float)input->zero_point;
      int32_t least = is_int8 ? -128 : 0;
      int32_t most = least + 255;
      int32_t stored = !(steps > (float)least) ? least
                       : steps > (float)most   ? most
                                               : nearest(steps);
      place[loaded / 4u] = (uint8_t)stored;
    }
  }
  loaded++;
  if (loaded == announced) {
    say("m-load-done\r\n");
  }
}

static int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') {
    return letter - '0';
  }
  letter = (char)(letter | 0x20);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static void load_hex(const char *digits) {
  if (strlen(digits) % 2u != 0u) {
    say("e-[Insufficient number of hex digits]\r\n");
    return;
  }
  for (; *digits != '\0'; digits += 2) {
    int high = digit_of(digits[0]), low = digit_of(digits[1]);
    if (high < 0 || low < 0) {
      say("e-[Invalid hex digit]\r\n");
      return;
    }
    take_byte((uint8_t)(high * 16 + low));
  }
}

/* The next word of the command, or none. */
static char *next_word(char **rest) {
  char *at = *rest;
  while (*at == ' ' || *at == '\r' || *at == '\n') {
    at++;
  }
  char *begun = at;
  while (*at != '\0' && *at != ' ' && *at != '\r' && *at != '\n') {
    at++;
  }
  *rest = *at == '\0' ? at : at + 1;
  *at = '\0';
  return *begun == '\0' ? NULL : begun;
}

/* A whole number below ten million; -1 for anything else. */
static int32_t number_in(const char *text) {
  int32_t number = 0;
  if (*text == '\0' || strlen(text) > 7u) {
    return -1;
  }
  for (; *text != '\0'; text++) {
    if (*text < '0' || *text > '9') {
      return -1;
    }
    number = number * 10 + (*text - '0');
  }
  return number;
}

static void announce(const char *text) {
  const ek_tensor *input = &ek_models[0].input[0];
  int is_byte = size_of(input) == 1u && input->scale > 0.0f;
  int32_t count = text == NULL ? -1 : number_in(text);
  if (count <= 0) {
    say("e-[Command 'db load' requires the # of bytes]\r\n");
  } else if ((uint32_t)count != input->bytes && !(is_byte && (uint32_t)count == 4u * input->bytes)) {
    say_about("e-[The model takes ", input->bytes, " bytes]\r\n");
  } else {
    announced = (uint32_t)count;
    loaded = 0;
    say_about("m-[Expecting ", announced, " bytes]\r\n");
  }
}

static void print_buffer(void) {
  static const char letters[] = "0123456789abcdef";
  const uint8_t *place = kept_input();
  uint32_t count = ek_models[0].input[0].bytes;
  for (uint32_t i = 0; i < count; i++) {
    say(i % 8u == 0u ? "m-buffer-" : "-");
    board_write((uint8_t)letters[place[i] >> 4]);
    board_write((uint8_t)letters[place[i] & 15u]);
    if (i % 8u == 7u || i + 1u == count) {
      say("\r\n");
    }
  }
}

static void handle_buffer(char *rest) {
  char *what = next_word(&rest);
  if (what == NULL) {
    say("e-[Command 'db' requires a subcommand]\r\n");
  } else if (strcmp(what, "load") == 0) {
    announce(next_word(&rest));
  } else if (strcmp(what, "print") == 0) {
    print_buffer();
  } else {
    load_hex(what);
  }
}

static void say_results(void) {
  const ek_tensor *output = &ek_models[0].output[0];
  const uint8_t *at = ek_arena + output->offset;
  uint32_t size = size_of(output);
  int is_float = strcmp(output->dtype, "float32") == 0;
  int is_int8 = strcmp(output->dtype, "int8") == 0;
  say("m-results-[");
  for (uint32_t i = 0; i < output->bytes; i += size) {
    float value = 0.0f;
    if (is_float) {
      memcpy(&value, at + i, sizeof value);
    } else if (size == 1u) {
      value = is_int8 ? (float)(int8_t)at[i] : (float)at[i];
      if (output->scale > 0.0f) {
        value = (value - (float)output->zero_point) * output->scale;
      }
    }
    say(i == 0u ? "" : ",");
    say_real(value);
  }
  say("]\r\n");
}

static int infer(int32_t count) {
  const ek_model *model = &ek_models[0];
  uint8_t *place = ek_arena + model->input[0].offset;
  int status = 0;
  while (count-- > 0 && status == 0) {
    if (kept_input() != place) {
      memcpy(place, kept_input(), model->input[0].bytes);
    }
    status = model->run(ek_arena);
  }
  return status;
}

static void handle_infer(char *rest) {
  const char *first = next_word(&rest), *second = next_word(&rest);
  int32_t count = first == NULL ? 1 : number_in(first);
  int32_t warmup = second == NULL ? 10 : number_in(second);
  if (count <= 0) {
    say("e-[Inference iterations must be >0]\r\n");
    return;
  }
  if (warmup < 0) {
    say("e-[Inference warmup must be >=0]\r\n");
    return;
  }
  say_about("m-warmup-start-", (uint32_t)warmup, "\r\n");
  int status = infer(warmup);
  say("m-warmup-done\r\n");
  say_about("m-infer-start-", (uint32_t)count, "\r\n");
  say_time();
  status = status == 0 ? infer(count) : status;
  say_time();
  say("m-infer-done\r\n");
  if (status != 0) {
    say("e-[The model failed]\r\n");
    return;
  }
  say_results();
}

static void handle(char *rest) {
  const char *command = next_word(&rest);
  if (command == NULL) {
    say("e-[Unknown command: ]\r\n");
  } else if (strcmp(command, "name") == 0) {
    uint32_t core = machine_cpu();
    int is_emulated = core == QEMU_M3 || core == QEMU_M4;
    say(is_emulated ? "m-name-dut-[edgekit-emulated]\r\n" : "m-name-dut-[edgekit]\r\n");
  } else if (strcmp(command, "timestamp") == 0) {
    say_time();
  } else if (strcmp(command, "profile") == 0) {
    say("m-profile-[" VERSION "]\r\nm-model-[");
    say(ek_models[0].name);
    say("]\r\n");
  } else if (strcmp(command, "help") == 0) {
    say(VERSION "\r\n\r\nhelp, name, timestamp, profile, results\r\n"
                "db load N, db HH[HH]*, db print\r\ninfer N [W=10]\r\n");
  } else if (strcmp(command, "db") == 0) {
    handle_buffer(rest);
  } else if (strcmp(command, "infer") == 0) {
    handle_infer(rest);
  } else if (strcmp(command, "results") == 0) {
    say_results();
  } else {
    say("e-[Unknown command: ");
    say(command);
    say("]\r\n");
  }
}

void serve(uint32_t clock) {
  char command[MOST_COMMAND + 1u];
  uint32_t length = 0;
  clock_hz = clock;
  counter_start();
  say("m-init-done\r\nm-ready\r\n");
  for (;;) {
    int byte = board_read();
    if (byte < 0) {
      continue; /* the counter goes on, which a sleeping core would stop */
    }
    if (byte == '%') {
      command[length] = '\0';
      handle(command);
      say("m-ready\r\n");
      length = 0;
    } else if (length < MOST_COMMAND) {
      command[length++] = (char)byte;
    }
  }
}

/* The framework has no word for it: the line is silent after this. */
void serve_fault(const uint32_t *report, uint32_t words) {
  (void)words;
  say("e-[Fault ");
  say_number(report[0]);
  say("]\r\n");
  for (;;) {
  }
}
