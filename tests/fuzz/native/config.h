/* What the profile of a board says, for the fuzzing of serve.c. */
#define EK_ARENA_BYTES 512u
#define EK_BAUD 115200u
