/* Runs the reference inputs and compares the outputs with the expected ones. */
#define main reference
#include "reference.c"
#undef main

void app_main(void)
{
    printf("%s\n", reference() == 0 ? "all as expected" : "NOT as expected");
}
