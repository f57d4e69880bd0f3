/* What C under test on an emulated Cortex-M may use besides newlib's printf. */
#ifndef EDGEKIT_TEST_HARNESS_H
#define EDGEKIT_TEST_HARNESS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Count the instructions between the two; the host finds them under the name. May be repeated, not
 * nested. */
void count_begin(void);
void count_end(const char *name);

#ifdef __cplusplus
}
#endif
#endif
