/* Runs the reference inputs and compares the outputs with the expected ones. */
#define main reference
#include "reference.c"
#undef main

int main(void)
{
    printf("%s\n", reference() == 0 ? "all as expected" : "NOT as expected");
    return 0;
}
