/* A plugin of QEMU that counts how often each block of instructions runs.
 *
 * At the end it writes a line for each block that ran: its address, its instructions, and how often
 * it was entered. QEMU's plugin interface, version 1.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_info;
enum { INLINE_ADD_U64 };

extern int qemu_plugin_version;
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t id, void (*translated)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(
    struct qemu_plugin_tb *block, int operation, void *counter, uint64_t value);
void qemu_plugin_register_atexit_cb(
    qemu_plugin_id_t id, void (*ended)(qemu_plugin_id_t, void *), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv);

struct block {
    struct block *next;
    uint64_t address;
    size_t instructions;
    uint64_t runs;
};

enum { BUCKETS = 1 << 14 };
static struct block *buckets[BUCKETS];
static const char *file;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *made)
{
    const uint64_t address = qemu_plugin_tb_vaddr(made);
    const size_t instructions = qemu_plugin_tb_n_insns(made);
    struct block **place = &buckets[(address >> 1) % BUCKETS];
    struct block *block = *place;
    (void)id;
    while (block && (block->address != address || block->instructions != instructions))
        block = block->next;
    if (!block) {
        block = calloc(1, sizeof *block);
        if (!block)
            abort();
        block->address = address;
        block->instructions = instructions;
        block->next = *place;
        *place = block;
    }
    qemu_plugin_register_vcpu_tb_exec_inline(made, INLINE_ADD_U64, &block->runs, 1);
}

static void ended(qemu_plugin_id_t id, void *data)
{
    FILE *stream = fopen(file, "w");
    (void)id;
    (void)data;
    if (!stream)
        return;
    for (int bucket = 0; bucket < BUCKETS; ++bucket)
        for (const struct block *block = buckets[bucket]; block; block = block->next)
            if (block->runs)
                fprintf(stream, "%" PRIx64 " %zu %" PRIu64 "\n", block->address,
                        block->instructions, block->runs);
    fclose(stream);
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1)
        return 1;
    file = argv[0] + sizeof "to=" - 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
