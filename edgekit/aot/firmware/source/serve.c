/* Answer requests, one at a time, in an endless loop: docs/serial-protocol.md. */
#include <string.h>

#include "board.h"
#include "frame.h"
#include "models.h"

enum {
  HELLO = 0x01,
  MODEL = 0x02,
  TENSOR = 0x03,
  STEP_NAME = 0x04,
  MEMORY = 0x05,
  RESET = 0x06,
  WRITE = 0x10,
  RUN = 0x11,
  RUN_STEP = 0x12,
  READ = 0x13,
  ANSWER = 0x80,
  REFUSED = 0xFE,
  FAULT = 0xFF
};

enum { NO_SESSION = 1, UNKNOWN = 2, MALFORMED = 3, NO_SUCH = 4 };

extern const uint8_t ek_build_id[];
extern uint8_t ek_spare_start[], ek_spare_end[];

#define BUILD_ID_BYTES 20u
#define SESSION(sequence) ((sequence) >> 16)

static uint32_t clock_hz;
static uint32_t session;
/* The sequence of the latest request, which a fault is an answer to. */
static uint32_t asked;
/* The latest run: requested again after a lost answer, it is not repeated. */
static struct {
  uint32_t sequence;
  uint8_t kind;
  uint8_t length; /* 0: none */
  uint8_t answer[12];
} latest;

static uint32_t word_at(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void add_word(uint32_t word) {
  const uint8_t bytes[4] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                            (uint8_t)(word >> 24)};
  frame_add(bytes, sizeof bytes);
}

static void refuse(const frame *request, uint8_t why) {
  frame_begin(REFUSED, request->sequence, 2);
  frame_add(&why, 1);
  frame_add(&request->kind, 1);
  frame_end();
}

static void answer(const frame *request, uint32_t length) {
  frame_begin((uint8_t)(request->kind | ANSWER), request->sequence, length);
}

static void empty_answer(const frame *request) {
  answer(request, 0);
  frame_end();
}

static uint32_t aligned(uint32_t bytes) { return (bytes + 15u) & ~15u; }

/* Inputs are outside of the arena if there is room, so that a run, which may overwrite inputs in
 * the arena, can be repeated. */
static int keeps_inputs(const ek_model *model) {
  uint32_t needed = 0;
  for (uint32_t i = 0; i < model->inputs; i++) {
    needed += aligned(model->input[i].bytes);
  }
  return needed <= (uint32_t)((uintptr_t)ek_spare_end - (uintptr_t)ek_spare_start);
}

static uint8_t *input_at(const ek_model *model, uint32_t index) {
  if (!keeps_inputs(model)) {
    return ek_arena + model->input[index].offset;
  }
  uint8_t *at = ek_spare_start;
  for (uint32_t i = 0; i < index; i++) {
    at += aligned(model->input[i].bytes);
  }
  return at;
}

static void lay_inputs(const ek_model *model) {
  if (!keeps_inputs(model)) {
    return;
  }
  for (uint32_t i = 0; i < model->inputs; i++) {
    memcpy(ek_arena + model->input[i].offset, input_at(model, i), model->input[i].bytes);
  }
}

static void say_hello(const frame *request) {
  session = SESSION(request->sequence);
  latest.length = 0;
  answer(request, BUILD_ID_BYTES + 7u * 4u);
  frame_add(ek_build_id, BUILD_ID_BYTES);
  add_word(clock_hz);
  add_word(machine_cpu());
  add_word(ek_models_count);
  add_word(FRAME_PAYLOAD);
  add_word(EK_ARENA_BYTES);
  add_word(stack_size());
  add_word(EK_BAUD);
  frame_end();
}

static void describe_model(const frame *request, const ek_model *model) {
  uint32_t name = (uint32_t)strlen(model->name), hash = (uint32_t)strlen(model->sha256);
  answer(request, 6u * 4u + name + 1u + hash);
  add_word(model->arena);
  add_word(model->inputs);
  add_word(model->outputs);
  add_word(model->steps);
  add_word((uint32_t)model->check());
  add_word((uint32_t)keeps_inputs(model));
  frame_add(model->name, name + 1u);
  frame_add(model->sha256, hash);
  frame_end();
}

static void describe_tensor(const frame *request, const ek_tensor *tensor) {
  uint32_t name = (uint32_t)strlen(tensor->name), dtype = (uint32_t)strlen(tensor->dtype);
  answer(request, 4u + name + 1u + dtype);
  add_word(tensor->bytes);
  frame_add(tensor->name, name + 1u);
  frame_add(tensor->dtype, dtype);
  frame_end();
}

static void name_step(const frame *request, const ek_model *model) {
  const char *name = model->step_name(word_at(request->payload + 4));
  answer(request, (uint32_t)strlen(name));
  frame_add(name, (uint32_t)strlen(name));
  frame_end();
}

static void tell_memory(const frame *request) {
  answer(request, 3u * 4u);
  add_word(stack_size());
  add_word(stack_used());
  add_word(frame_damaged());
  frame_end();
}

static void write_input(const frame *request, const ek_model *model, uint32_t index) {
  uint32_t offset = word_at(request->payload + 8), count = request->length - 12u;
  const ek_tensor *tensor = &model->input[index];
  if (offset > tensor->bytes || count > tensor->bytes - offset) {
    refuse(request, MALFORMED);
    return;
  }
  memcpy(input_at(model, index) + offset, request->payload + 12, count);
  empty_answer(request);
}

static void read_output(const frame *request, const ek_model *model, uint32_t index) {
  uint32_t offset = word_at(request->payload + 8), count = word_at(request->payload + 12);
  const ek_tensor *tensor = &model->output[index];
  if (count > FRAME_PAYLOAD || offset > tensor->bytes || count > tensor->bytes - offset) {
    refuse(request, MALFORMED);
    return;
  }
  answer(request, count);
  frame_add(ek_arena + tensor->offset + offset, count);
  frame_end();
}

static void send_latest(const frame *request) {
  answer(request, latest.length);
  frame_add(latest.answer, latest.length);
  frame_end();
}

static void run_model(const frame *request, const ek_model *model) {
  uint32_t step = request->kind == RUN_STEP ? word_at(request->payload + 4) : 0u;
  if (step == 0u) {
    lay_inputs(model);
  }
  counter_start();
  int status = request->kind == RUN ? model->run(ek_arena) : model->run_step(step, ek_arena);
  uint64_t cycles = counter_stop();
  for (uint32_t i = 0; i < 4u; i++) {
    latest.answer[i] = (uint8_t)((uint32_t)status >> (8u * i));
    latest.answer[4u + i] = (uint8_t)(cycles >> (8u * i));
    latest.answer[8u + i] = (uint8_t)(cycles >> (32u + 8u * i));
  }
  latest.kind = request->kind;
  latest.sequence = request->sequence;
  latest.length = sizeof latest.answer;
  send_latest(request);
}

/* The least bytes of payload of each request; 0xFF for one that does not exist. */
static uint32_t least(uint8_t kind) {
  switch (kind) {
    case HELLO:
    case MEMORY:
    case RESET:
      return 0;
    case MODEL:
    case RUN:
      return 4;
    case STEP_NAME:
    case RUN_STEP:
      return 8;
    case TENSOR:
    case WRITE:
      return 12;
    case READ:
      return 16;
    default:
      return 0xFF;
  }
}

static void handle_model(const frame *request) {
  uint32_t number = word_at(request->payload);
  if (number >= ek_models_count) {
    refuse(request, NO_SUCH);
    return;
  }
  const ek_model *model = &ek_models[number];
  uint32_t index = request->length >= 8u ? word_at(request->payload + 4) : 0u;
  uint32_t direction = request->kind == TENSOR ? word_at(request->payload + 8) : 0u;
  uint32_t most = 1;
  if (request->kind == STEP_NAME || request->kind == RUN_STEP) {
    most = model->steps;
  } else if (request->kind == WRITE) {
    most = model->inputs;
  } else if (request->kind == READ) {
    most = model->outputs;
  } else if (request->kind == TENSOR) {
    most = direction == 0u ? model->inputs : model->outputs;
  } else {
    index = 0;
  }
  if (index >= most) {
    refuse(request, NO_SUCH);
    return;
  }
  switch (request->kind) {
    case MODEL:
      describe_model(request, model);
      break;
    case TENSOR:
      describe_tensor(request, direction == 0u ? &model->input[index] : &model->output[index]);
      break;
    case STEP_NAME:
      name_step(request, model);
      break;
    case WRITE:
      write_input(request, model, index);
      break;
    case READ:
      read_output(request, model, index);
      break;
    default:
      run_model(request, model);
  }
}

static void handle(const frame *request) {
  uint32_t needed = least(request->kind);
  if (needed == 0xFFu) {
    refuse(request, UNKNOWN);
  } else if (request->length < needed) {
    refuse(request, MALFORMED);
  } else if (request->kind == HELLO) {
    say_hello(request);
  } else if (request->kind == RESET) {
    empty_answer(request);
    machine_reset();
  } else if (SESSION(request->sequence) != session || session == 0u) {
    refuse(request, NO_SESSION);
  } else if (latest.length != 0u && latest.sequence == request->sequence &&
             latest.kind == request->kind) {
    send_latest(request);
  } else if (request->kind == MEMORY) {
    tell_memory(request);
  } else {
    handle_model(request);
  }
}

void serve(uint32_t clock) {
  clock_hz = clock;
  for (;;) {
    int byte = board_read();
    frame request;
    if (byte < 0) {
      machine_wait();
    } else if (frame_take((uint8_t)byte, &request)) {
      asked = request.sequence;
      handle(&request);
    }
  }
}

/* Answer the request under way, and every later one except a reset. */
void serve_fault(const uint32_t *report, uint32_t words) {
  frame request = {0, asked, 0, 0};
  for (;;) {
    frame_begin(FAULT, request.sequence, words * 4u);
    for (uint32_t i = 0; i < words; i++) {
      add_word(report[i]);
    }
    frame_end();
    int byte;
    do {
      byte = board_read();
    } while (byte < 0 || !frame_take((uint8_t)byte, &request));
    if (request.kind == RESET) {
      empty_answer(&request);
      machine_reset();
    }
  }
}
