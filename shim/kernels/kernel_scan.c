#include "kernels/kernel_scan.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "kernels/cubin.h"

#define SECTION_PREFIX ".text."
#define SECTION_PREFIX_BYTES (sizeof SECTION_PREFIX - 1)
#define INSTRUCTION_BYTES 16u
#define IN_SHARED_MEMORY 0x40 /* st_other of variables of the block; 0x20 of others, 0x10 of functions */

/* The architectures whose instructions were compared with nvdisasm's text. */
#define ARCH_FIRST 80u
#define ARCH_LAST 90u

/* ---- instructions ---- */

/*
 * The words of an instruction, lower one first. Its lowest nine bits are the operation, the next
 * three the form of its operands. NVIDIA documents neither: nvdisasm prints words and text side by
 * side, and `tests/unit/kernels/cubins/compare` compares this table with that text.
 */
struct instruction {
    uint64_t low, high;
};

enum {
    OPERATION_BITS = 9,
    OPERATIONS = 1 << OPERATION_BITS,
    FORM_CONSTANT_LAST = 3, /* the last operand is in a constant bank */
    FORM_NUMBER = 4,        /* the second is a number in the instruction */
    FORM_CONSTANT = 5,      /* the second is in a constant bank */
};

enum {
    OPERATION_ULDC_INDEXED = 0x0bb,
    OPERATION_LDC = 0x182,
    OPERATION_ST = 0x185, /* and STG: behind the loads */
    REGISTER_ZERO = 0xff,
    PARAMETERS_OF_SM_80 = 0x160, /* where they begin in bank 0, up to sm_89 */
    PARAMETERS_OF_SM_90 = 0x210,
};

/* What an operation may do. One that is not listed is unknown. */
enum operation {
    UNKNOWN,
    HARMLESS,  /* depends on its operands alone, or on shared memory and barriers of the block */
    MEMORY,    /* loads or stores: its kind of access counts */
    REGISTER,  /* reads a special register: which one counts */
    ATOMIC,    /* changes memory by what is there */
    FENCE,     /* orders accesses for others */
    CALL,      /* jumps to an address in a register or outside */
    CALL_HERE, /* jumps from here on: by a number, or by a register too */
};

#define SEVERAL(from, to, what) [from... to] = what

static const unsigned char operations[OPERATIONS] = {
    /* MOV P2R R2P, VOTE SEL FSEL FMNMX FSET FSETP ISETP, VIMNMX3 IADD3 LEA LOP3 IABS */
    SEVERAL(0x002, 0x004, HARMLESS),
    SEVERAL(0x006, 0x00c, HARMLESS),
    SEVERAL(0x00f, 0x013, HARMLESS),
    [0x005] = REGISTER,              /* CS2R */
    [0x016] = HARMLESS,              /* PRMT */
    [0x017] = HARMLESS,              /* IMNMX */
    SEVERAL(0x019, 0x01a, HARMLESS), /* SHF SGXT */
    [0x01c] = HARMLESS,              /* PLOP3 */
    SEVERAL(0x020, 0x021, HARMLESS), /* FMUL FADD */
    SEVERAL(0x023, 0x025, HARMLESS), /* FFMA IMAD IMAD.WIDE */
    SEVERAL(0x027, 0x02b, HARMLESS), /* IMAD.HI DMUL DADD DSETP DFMA */
    SEVERAL(0x02d, 0x02e, FENCE),    /* PREEXIT ACQBULK */
    SEVERAL(0x030, 0x036, HARMLESS), /* HADD2 HFMA2 HMUL2 HSET2 HSETP2 HFMA2.MMA VIADD */
    SEVERAL(0x03b, 0x03c, HARMLESS), /* LDSM HMMA */
    [0x03e] = HARMLESS,              /* F2FP */
    SEVERAL(0x044, 0x046, HARMLESS), /* STSM I2FP VIADDMNMX */
    [0x048] = HARMLESS,              /* VIMNMX */
    [0x082] = HARMLESS,              /* UMOV */
    SEVERAL(0x086, 0x087, HARMLESS), /* VOTEU USEL */
    [0x08c] = HARMLESS,              /* UISETP */
    SEVERAL(0x090, 0x092, HARMLESS), /* UIADD3 ULEA ULOP3 */
    [0x096] = HARMLESS,              /* UPRMT */
    [0x099] = HARMLESS,              /* USHF */
    [0x09c] = HARMLESS,              /* UPLOP3 */
    SEVERAL(0x0a4, 0x0a5, HARMLESS), /* UIMAD UIMAD.WIDE */
    [0x0b9] = HARMLESS,              /* ULDC */
    [0x0bb] = HARMLESS,              /* ULDC by a register */
    [0x0ca] = HARMLESS,              /* R2UR */
    SEVERAL(0x100, 0x102, HARMLESS), /* FLO BREV FCHK */
    SEVERAL(0x104, 0x109, HARMLESS), /* F2F F2I I2F FRND MUFU POPC */
    SEVERAL(0x110, 0x113, HARMLESS), /* F2F F2I I2F FRND of 64 bits */
    [0x118] = HARMLESS,              /* NOP */
    [0x119] = REGISTER,              /* S2R */
    SEVERAL(0x11a, 0x11b, HARMLESS), /* DEPBAR ENDCOLLECTIVE */
    SEVERAL(0x11c, 0x11d, HARMLESS), /* B2R BAR */
    SEVERAL(0x141, 0x142, HARMLESS), /* BSYNC BREAK */
    [0x143] = CALL,                  /* CALL.ABS */
    [0x144] = CALL_HERE,             /* CALL.REL */
    SEVERAL(0x145, 0x148, HARMLESS), /* BSSY YIELD BRA WARPSYNC */
    [0x149] = CALL,                  /* BRX */
    [0x14a] = CALL,                  /* JMP */
    [0x14c] = CALL,                  /* JMX */
    [0x14d] = HARMLESS,              /* EXIT */
    [0x14e] = CALL,                  /* LEPC */
    [0x150] = HARMLESS,              /* RET.REL */
    [0x15c] = HARMLESS,              /* BPT */
    [0x15d] = FENCE,                 /* NANOSLEEP */
    SEVERAL(0x180, 0x181, MEMORY),   /* LD LDG */
    [0x182] = HARMLESS,              /* LDC */
    SEVERAL(0x183, 0x184, HARMLESS), /* LDL LDS */
    SEVERAL(0x185, 0x186, MEMORY),   /* ST STG */
    SEVERAL(0x187, 0x189, HARMLESS), /* STL STS SHFL */
    SEVERAL(0x18a, 0x18e, ATOMIC),   /* ATOM ATOM.CAS ATOMS ATOMS.CAS REDG */
    [0x18f] = FENCE,                 /* CCTL */
    [0x192] = FENCE,                 /* MEMBAR */
    [0x1a2] = ATOMIC,                /* ATOM of halves */
    SEVERAL(0x1a5, 0x1a6, ATOMIC),   /* LDGMC REDG */
    SEVERAL(0x1a8, 0x1a9, ATOMIC),   /* ATOMG ATOMG.CAS */
    [0x1ab] = FENCE,                 /* ERRBAR */
    [0x1ae] = MEMORY,                /* LDGSTS */
    [0x1af] = HARMLESS,              /* LDGDEPBAR */
    [0x1c3] = REGISTER,              /* S2UR */
    [0x1c6] = FENCE,                 /* FENCE */
};

/* Special registers that are the same each time, by bits 72 to 79. */
static const bool is_same[256] = {
    [0x00] = true, /* lane */
    [0x20] = true,
    SEVERAL(0x21, 0x23, true), /* thread in its block */
    SEVERAL(0x25, 0x27, true), /* block in its grid */
    [0x32] = true,             /* bytes of shared memory */
    SEVERAL(0x38, 0x3c, true), /* masks of lanes */
    [0x88] = true,             /* block in its cluster */
    [0xff] = true,             /* zero */
};

static enum ps_kernel_doubt doubt_of_register(unsigned number)
{
    if (is_same[number])
        return PS_DOUBT_NONE;
    return number >= 0x50 && number <= 0x6f ? PS_DOUBT_CLOCK : PS_DOUBT_PLACE;
}

/* Bits 77 to 80: 0 for a weak access, 4 for a load of memory that stays constant meanwhile. */
static enum ps_kernel_doubt doubt_of_access(struct instruction i)
{
    const unsigned kind = i.high >> 13 & 0xf;

    return kind == 0 || (kind == 4 && i.low % OPERATIONS < OPERATION_ST) ? PS_DOUBT_NONE : PS_DOUBT_SHARING;
}

/* Bytes of bank 0 in front of the parameters that are the same for each launch of that shape. */
static bool is_same_at(unsigned at, unsigned parameters)
{
    return at < 0x18 ||                   /* dimensions of the block and the grid */
           (at >= 0x20 && at < 0x30) ||   /* local memory, bytes of dynamic shared memory */
           (at >= 0x114 && at < 0x118) || /* bytes of shared memory that are reserved */
           (parameters == PARAMETERS_OF_SM_80 ? at >= 0x118 && at < 0x120 : at >= 0x208); /* how to access memory */
}

/*
 * Bank 0 has what the driver notes of the launch, then the parameters. Bank 2 has constants of the
 * compiler's, bank 3 the module's constant variables, bank 4 addresses of its other variables and
 * of functions.
 */
static enum ps_kernel_doubt doubt_of_constant(struct instruction i, unsigned parameters)
{
    const unsigned operation = i.low % OPERATIONS, form = i.low >> OPERATION_BITS & 7;
    const unsigned bank = i.low >> 54 & 0x1f, at = i.low >> 38 & 0xffff;
    const bool is_indexed =
        operation == OPERATION_ULDC_INDEXED || (operation == OPERATION_LDC && (i.low >> 24 & 0xff) != REGISTER_ZERO);

    if (form != FORM_CONSTANT && form != FORM_CONSTANT_LAST)
        return PS_DOUBT_NONE;
    /* The bank may be in a register: cx[], and LDC.IL and the like. ULDC has its index there. */
    if ((operation != OPERATION_ULDC_INDEXED && (i.high >> 27 & 1)) ||
        (operation == OPERATION_LDC && (i.high >> 14 & 3)))
        return PS_DOUBT_VARIABLES;
    if (bank == 0)
        return at >= parameters || (!is_indexed && is_same_at(at, parameters)) ? PS_DOUBT_NONE : PS_DOUBT_LAUNCH;
    return bank == 2 ? PS_DOUBT_NONE : PS_DOUBT_VARIABLES;
}

static enum ps_kernel_doubt doubt_of(struct instruction i, unsigned parameters)
{
    switch ((enum operation)operations[i.low % OPERATIONS]) {
    case HARMLESS:
        return doubt_of_constant(i, parameters);
    case MEMORY:
        return doubt_of_access(i);
    case REGISTER:
        return doubt_of_register(i.high >> 8 & 0xff);
    case ATOMIC:
        return PS_DOUBT_ATOMICS;
    case FENCE:
        return PS_DOUBT_FENCES;
    case CALL:
        return PS_DOUBT_CALLS;
    case CALL_HERE: /* a relocation shows a number that leads outside */
        return (i.low >> OPERATION_BITS & 7) == FORM_NUMBER ? PS_DOUBT_NONE : PS_DOUBT_CALLS;
    case UNKNOWN:
        break;
    }
    return PS_DOUBT_INSTRUCTION;
}

static struct instruction instruction_at(const unsigned char *code)
{
    struct instruction i;

    memcpy(&i.low, code, sizeof i.low);
    memcpy(&i.high, code + sizeof i.low, sizeof i.high);
    return i;
}

/* ---- a cubin ---- */

struct kernel {
    struct ps_kernel_scan scan;
    size_t section;
};

/* A section of relocations, and the symbols that they are about. */
struct relocations {
    const unsigned char *bytes;
    size_t size, entry;      /* in bytes; of one entry */
    size_t section, symbols; /* numbers of sections: whose they are, and of their symbols */
};

struct cubin {
    struct kernel *kernels;
    struct relocations *relocations;
    size_t kernel_count, kernel_room, relocation_count, relocation_room;
    const unsigned char *symbols;
    size_t symbol_bytes, symbol_section;
    ps_kernel_scan_fn each;
    void *ctx;
};

static void scan_code(struct ps_kernel_scan *scan, unsigned arch, const unsigned char *code, size_t bytes)
{
    scan->doubt =
        arch < ARCH_FIRST || arch > ARCH_LAST || !bytes || bytes % INSTRUCTION_BYTES ? PS_DOUBT_CODE : PS_DOUBT_NONE;
    for (size_t at = 0; scan->doubt == PS_DOUBT_NONE && at < bytes; at += INSTRUCTION_BYTES) {
        const struct instruction i = instruction_at(code + at);
        scan->doubt = doubt_of(i, arch < 90 ? PARAMETERS_OF_SM_80 : PARAMETERS_OF_SM_90);
        scan->at = (uint32_t)at;
        scan->instruction = i.low & 0xfff;
    }
    if (scan->doubt == PS_DOUBT_NONE)
        scan->at = scan->instruction = 0;
}

static int add_kernel(struct cubin *cubin, const struct ps_cubin_section *section)
{
    struct kernel *grown = ps_grown_array(cubin->kernels, cubin->kernel_count, &cubin->kernel_room, 8, sizeof *grown);
    const unsigned char *code;
    size_t bytes;

    if (!grown)
        return -ENOMEM;
    cubin->kernels = grown;
    struct kernel *k = &grown[cubin->kernel_count];
    if (ps_cubin_section_bytes(section, &code, &bytes))
        return -EINVAL;
    *k = (struct kernel){.scan.name = section->name + SECTION_PREFIX_BYTES, .section = section->index};
    scan_code(&k->scan, section->arch, code, bytes);
    cubin->kernel_count++;
    return 0;
}

static int add_relocations(struct cubin *cubin, const struct ps_cubin_section *section)
{
    struct relocations *grown =
        ps_grown_array(cubin->relocations, cubin->relocation_count, &cubin->relocation_room, 8, sizeof *grown);

    if (!grown)
        return -ENOMEM;
    cubin->relocations = grown;
    struct relocations *r = &grown[cubin->relocation_count];
    *r = (struct relocations){.entry = section->header.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel),
                              .section = section->header.sh_info,
                              .symbols = section->header.sh_link};
    if (ps_cubin_section_bytes(section, &r->bytes, &r->size) || r->size % r->entry)
        return -EINVAL;
    cubin->relocation_count++;
    return 0;
}

/*
 * Of an address that the loader puts into the code. One of the kernel itself is another one when
 * its module is loaded again.
 */
static enum ps_kernel_doubt doubt_of_symbol(const struct cubin *cubin, size_t symbol, size_t own)
{
    Elf64_Sym s;

    if ((symbol + 1) * sizeof s > cubin->symbol_bytes)
        return PS_DOUBT_CODE;
    memcpy(&s, cubin->symbols + symbol * sizeof s, sizeof s);
    if ((s.st_shndx == own && ELF64_ST_TYPE(s.st_info) != STT_FUNC) || s.st_other == IN_SHARED_MEMORY)
        return PS_DOUBT_NONE;
    return ELF64_ST_TYPE(s.st_info) == STT_FUNC ? PS_DOUBT_CALLS : PS_DOUBT_VARIABLES;
}

static void apply_relocations(const struct cubin *cubin, const struct relocations *r, struct kernel *k)
{
    for (size_t at = 0; k->scan.doubt == PS_DOUBT_NONE && at < r->size; at += r->entry) {
        Elf64_Rel entry; /* of both sorts, this comes first */
        memcpy(&entry, r->bytes + at, sizeof entry);
        k->scan.doubt = r->symbols == cubin->symbol_section
                            ? doubt_of_symbol(cubin, ELF64_R_SYM(entry.r_info), k->section)
                            : PS_DOUBT_CODE;
        k->scan.at = k->scan.doubt == PS_DOUBT_NONE ? 0 : (uint32_t)entry.r_offset & ~15u;
    }
}

static int tell_all(struct cubin *cubin)
{
    int rc = 0;

    for (size_t i = 0; i < cubin->relocation_count; i++)
        for (size_t k = 0; k < cubin->kernel_count; k++)
            if (cubin->kernels[k].section == cubin->relocations[i].section)
                apply_relocations(cubin, &cubin->relocations[i], &cubin->kernels[k]);
    for (size_t k = 0; k < cubin->kernel_count && rc == 0; k++)
        rc = cubin->each(&cubin->kernels[k].scan, cubin->ctx);
    return rc;
}

static int take_section(const struct ps_cubin_section *section, void *ctx)
{
    struct cubin *cubin = ctx;

    if (!section)
        return tell_all(cubin);
    switch (section->header.sh_type) {
    case SHT_RELA:
    case SHT_REL:
        return add_relocations(cubin, section);
    case SHT_SYMTAB:
        cubin->symbol_section = section->index;
        return ps_cubin_section_bytes(section, &cubin->symbols, &cubin->symbol_bytes);
    case SHT_PROGBITS:
        return section->name && !strncmp(section->name, SECTION_PREFIX, SECTION_PREFIX_BYTES)
                   ? add_kernel(cubin, section)
                   : 0;
    default:
        return 0;
    }
}

int ps_kernel_scan(const void *image, size_t bytes, ps_kernel_scan_fn each, void *ctx)
{
    struct cubin cubin = {.each = each, .ctx = ctx};
    const int rc = ps_cubin_each_section(image, bytes, take_section, &cubin);

    free(cubin.kernels);
    free(cubin.relocations);
    return rc;
}

const char *ps_kernel_doubt_text(enum ps_kernel_doubt doubt)
{
    static const char *const texts[PS_DOUBTS] = {
        [PS_DOUBT_NONE] = "proved",
        [PS_DOUBT_ATOMICS] = "atomic operations",
        [PS_DOUBT_FENCES] = "fences or waits for other work",
        [PS_DOUBT_SHARING] = "volatile or synchronizing accesses",
        [PS_DOUBT_CLOCK] = "a clock",
        [PS_DOUBT_PLACE] = "the multiprocessor it runs on",
        [PS_DOUBT_LAUNCH] = "what differs between launches",
        [PS_DOUBT_CALLS] = "calls of other functions",
        [PS_DOUBT_VARIABLES] = "variables of its module",
        [PS_DOUBT_INSTRUCTION] = "an unknown instruction",
        [PS_DOUBT_CODE] = "no code that can be read",
    };

    return (unsigned)doubt < PS_DOUBTS ? texts[doubt] : "?";
}
