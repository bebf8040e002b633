# Penstock's build. `make help` lists what can be asked of it.
#
# Everything that is built goes to build/<variant>/; the source tree stays clean. Variants:
#   (none)                        build/release
#   DEBUG=1                       build/debug    invariant checks, no optimisation
#   SAN=address|thread            build/asan|tsan
#   MUTANT=1                      build/mutant   PS_MUTANTS: tests take away one ordering rule at a time
# CC=gcc|clang chooses the compiler, V=1 shows the commands. CFLAGS, CPPFLAGS and LDFLAGS are the user's: what must hold is added to them.

MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.SUFFIXES:
.DELETE_ON_ERROR:

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g

# --- variant ---------------------------------------------------------------------------------------------------------------------------
SAN ?=
DEBUG ?=
MUTANT ?=
ifneq ($(filter-out address thread,$(SAN)),)
$(error SAN=$(SAN): expected address or thread)
endif
ifneq ($(words $(SAN) $(filter 1,$(DEBUG)) $(filter 1,$(MUTANT))),0)
ifneq ($(words $(SAN) $(filter 1,$(DEBUG)) $(filter 1,$(MUTANT))),1)
$(error SAN, DEBUG and MUTANT each name a variant of their own: give one of them)
endif
endif

variant_flags :=
ifeq ($(SAN),address)
VARIANT := asan
variant_flags := -fsanitize=address -fsanitize=undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -DPS_DEBUG
else ifeq ($(SAN),thread)
VARIANT := tsan
variant_flags := -fsanitize=thread -fno-omit-frame-pointer -O1 -DPS_DEBUG
else ifeq ($(DEBUG),1)
VARIANT := debug
variant_flags := -O0 -fno-omit-frame-pointer -DPS_DEBUG
else ifeq ($(MUTANT),1)
VARIANT := mutant
variant_flags := -DPS_MUTANTS
else
VARIANT := release
endif

# tests/cudasim/build.mk knows this directory as OUT.
OUT := build/$(VARIANT)

# --- toolkit ---------------------------------------------------------------------------------------------------------------------------
# scripts/dev/cuda-home names the first complete CUDA 13 toolkit: $CUDA_HOME, nvcc's, /usr/local/cuda, or the one scripts/dev/setup makes.
override CUDA_HOME := $(shell scripts/dev/cuda-home)
NVCC := $(CUDA_HOME)/bin/nvcc
# Toolkits from NVIDIA's installers keep CUPTI apart; the wheels put it with the rest.
cuda_includes := $(addprefix -isystem ,$(wildcard $(CUDA_HOME)/include $(CUDA_HOME)/extras/CUPTI/include))

# --- flags that must hold --------------------------------------------------------------------------------------------------------------
override CPPFLAGS += -D_GNU_SOURCE= -Iinclude -Ishim -I. $(cuda_includes)
override CFLAGS += -std=gnu11 -fPIC -fvisibility=hidden -pthread $(variant_flags) \
    -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# Preloaded code lives in the initial TLS block: no call into the loader's lazy TLS allocation from inside a hook.
override CFLAGS += -ftls-model=initial-exec
# A program's exceptions pass through functions of ours that call its own (torch_errors.c), whatever the user's flags say.
override CFLAGS += -fasynchronous-unwind-tables

# --- hardening -------------------------------------------------------------------------------------------------------------------------
# Of what people run: a sanitizer finds more, and where nothing is optimised _FORTIFY_SOURCE is refused. The package builders of a distribution give flags of
# their own, and some compilers define _FORTIFY_SOURCE by themselves. Flags that this compiler or processor has not are left out.
takes = $(shell $(CC) -Werror $(1) -x c -c -o /dev/null /dev/null 2>/dev/null && echo '$(1)')
hardening :=
ifneq ($(filter release mutant,$(VARIANT)),)
hardening := -fstack-protector-strong -Wformat -Wformat-security $(call takes,-fstack-clash-protection) $(call takes,-fcf-protection=full)
ifneq ($(filter -O1 -O2 -O3 -Os -Og -Ofast -O,$(CFLAGS)),)
ifeq ($(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),)
hardening += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif
endif
endif
# Nothing that a program calls through is left writable, and the program itself may lie anywhere.
tool_ldflags := -pie -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack

# nodelete: a caller that has resolved a hook may still enter it after any number of dlclose calls. now: no lazy symbol look-up inside a hook,
# in a forked child or in a signal handler. as-needed with the three stubs: NEEDED is libc alone, on old and new libcs.
soname := libpenstock.so.$(shell scripts/packages/about major)
lib_ldflags := -shared -Wl,-soname,$(soname) -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack
system_libs := -Wl,--as-needed -lpthread -ldl -lm -Wl,--no-as-needed
# clang leaves the sanitizer's symbols of a shared object to the executable.
ifneq ($(and $(SAN),$(findstring clang,$(notdir $(CC)))),)
else
lib_ldflags += -Wl,-z,defs
endif

# --- sources ---------------------------------------------------------------------------------------------------------------------------
lib_sources := $(wildcard shim/*.c shim/*/*.c policy/*.c policy/*/*.c)
lib_objects := $(lib_sources:%.c=$(OUT)/obj/%.o)
# A folder for each room, as in shim/; all programs are in $(OUT)/unit.
unit_sources := $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)
# The simulated driver's own unit tests are linked with it; scripts/dev/test gives them the path to find it.
sim_unit_sources := $(wildcard tests/unit/cudasim/test_cudasim_*.c)
plain_unit_sources := $(filter-out $(sim_unit_sources),$(unit_sources))
plain_units := $(patsubst %.c,$(OUT)/unit/%,$(notdir $(plain_unit_sources)))
sim_units := $(patsubst %.c,$(OUT)/unit/%,$(notdir $(sim_unit_sources)))
units := $(plain_units) $(sim_units)
tool_sources := $(wildcard scripts/command/penstock-*.c)
tools := $(tool_sources:scripts/command/%.c=$(OUT)/%)
sample_sources := $(wildcard tests/samples/*.cu)
samples := $(sample_sources:tests/samples/%.cu=$(OUT)/samples/%)
# Toolkits differ in whether they bring the runtime as an archive.
static_samples := $(OUT)/samples/mlp-static-sim $(if $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a),\
    $(patsubst %,$(OUT)/samples/%-static,mlp hidden hostile random_orders random_overlap))
sample_policies := $(patsubst tests/samples/%.c,$(OUT)/samples/%.so,$(wildcard tests/samples/policy_*.c))

pages := $(OUT)/man/penstock.1 $(OUT)/man/libpenstock.7
completions := $(addprefix $(OUT)/completions/,bash zsh fish)
# The page of `penstock report`, and the library that draws its charts.
CHART_JS ?= /usr/share/javascript/chart.js/chart.min.js
report_page := $(patsubst scripts/command/%,$(OUT)/%,$(wildcard scripts/command/report-page/*)) $(OUT)/report-page/chart.js
library := $(OUT)/libpenstock.so
test_archive := $(OUT)/libpenstock-test.a
map := $(OUT)/libpenstock.map
ifeq ($(lib_sources),)
library :=
test_archive :=
endif

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' '$(1)' '$(2)')

.PHONY: all everything demo test test-all check bench install uninstall dist deb wheel clean distclean help setup sim units samples FORCE

# What is installed; and beside it what tests, measures and shows it.
all: $(library) $(tools) $(pages) $(completions) $(report_page)
everything: all $(test_archive) sim samples units benches

# --- rebuild when the commands change, not only when the files do ----------------------------------------------------------------------
# `flags` is what objects are made with, `sources` what libraries are made of: a file that is gone has no date to go by. `date` is that of the pages.
# Probes (shim/base/probes.h) are there where the header is.
flags_text := $(CC) $(hardening) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) | $(CUDA_HOME) $(wildcard /usr/include/sys/sdt.h /usr/include/*/sys/sdt.h)
sources_text := $(lib_sources) $(wildcard tests/cudasim/*/*.c) | $(lib_ldflags)
date_text = $(shell scripts/packages/about date)
$(OUT)/flags $(OUT)/sources $(OUT)/date: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$($(@F)_text)' | cmp -s - $@ || printf '%s\n' '$($(@F)_text)' >$@

# Without a toolkit there are no CUDA headers: say what to do, once, before the first compiler error.
ifeq ($(CUDA_HOME),)
toolkit_goals := $(filter-out demo test setup clean distclean dist help uninstall check,$(or $(MAKECMDGOALS),all))
ifneq ($(toolkit_goals),)
$(error no complete CUDA 13 toolkit found: run scripts/dev/setup, or set CUDA_HOME)
endif
endif

# --- the library -----------------------------------------------------------------------------------------------------------------------
$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(hardening) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(map): shim/hooks/libpenstock.map.in $(wildcard shim/cuda/hooks.def shim/cuda/traced_calls.def shim/cuda/nccl.def) scripts/dev/exports $(OUT)/flags
	$(call say,GEN,$@)
	$(Q)scripts/dev/exports map >$@

$(OUT)/libpenstock.so: $(lib_objects) $(map) $(OUT)/sources
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(lib_ldflags) -Wl,--version-script=$(map) -o $@ $(lib_objects) $(system_libs)

# For unit tests and the command's helpers: the same objects, hidden symbols and all; a member comes in when it is referenced.
$(test_archive): $(lib_objects) $(OUT)/sources
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(lib_objects)

# --- programs --------------------------------------------------------------------------------------------------------------------------
$(foreach source,$(unit_sources),$(eval $(OUT)/unit/$(notdir $(source:.c=)): $(source:%.c=$(OUT)/obj/%.o)))
$(OUT)/obj/tests/unit/%.o: override CPPFLAGS += -Itests/unit
$(plain_units): $(test_archive)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(test_archive) $(system_libs)

$(OUT)/obj/tests/unit/cudasim/%.o: override CPPFLAGS += -Itests/cudasim
$(sim_units): $(OUT)/sim/libcuda.so.1 $(OUT)/sim/libcupti.so.13
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(system_libs)

$(tools): $(OUT)/%: $(OUT)/obj/scripts/command/%.o $(test_archive)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(tool_ldflags) -o $@ $(filter %.o,$^) $(test_archive) $(system_libs)

# What several of them share, or one is made of.
$(addprefix $(OUT)/penstock-,plan plan-bound trade): $(OUT)/obj/scripts/command/plan_input.o
$(OUT)/penstock-top: $(addprefix $(OUT)/obj/scripts/command/top_,pages.o table.o)

# --- manual pages and completions ------------------------------------------------------------------------------------------------------
# Made from what the command itself shows (the help texts, and the table of settings), and from the manual.
$(OUT)/man/libpenstock.7: scripts/packages/markdown.awk $(wildcard scripts/manual/*.md)
$(pages): scripts/packages/man scripts/packages/about scripts/command/penstock-help include/penstock/version.h $(OUT)/date
$(completions): scripts/packages/completion $(wildcard scripts/packages/completion.*) scripts/packages/options scripts/command/penstock-help
$(OUT)/man/libpenstock.7 $(completions): $(OUT)/penstock-settings

$(OUT)/man/%:
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)scripts/packages/man $(basename $(@F)) $(OUT)/penstock-settings >$@

$(OUT)/completions/%:
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)scripts/packages/completion $(@F) $(OUT)/penstock-settings >$@

# --- the page of penstock report -------------------------------------------------------------------------------------------------------
$(OUT)/report-page/chart.js: $(wildcard $(CHART_JS))
	$(if $<,,$(error no Chart.js at $(CHART_JS): run scripts/dev/setup, or set CHART_JS to a chart.min.js of version 3))
	@mkdir -p $(@D)
	$(call say,COPY,$@)
	$(Q)cp $< $@

$(OUT)/report-page/%: scripts/command/report-page/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

units: $(units)
samples: $(samples) $(static_samples) $(OUT)/samples/mlp-12 $(sample_policies)

# One source for GPU and simulator: which CUDA it meets is decided by the loader's path at run time. The cubin is left uncompressed, as
# the simulator hands it to CUPTI's module callback, and -rdynamic shows the host bodies of the kernels to the simulator.
nvcc_flags := -std=c++17 -O2 -g -cudart shared -arch=sm_90 -compress-mode none -Xcompiler -rdynamic,-Wall
# nvcc takes a sanitizer's flags for the host side only, and not -O1 twice.
nvcc_flags += $(foreach flag,$(filter -fsanitize% -fno-sanitize% -fno-omit%,$(variant_flags)),-Xcompiler $(flag))

$(OUT)/obj/samples/%.o: tests/samples/%.cu $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(nvcc_flags) -Iinclude -I. -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(samples): $(OUT)/samples/%: $(OUT)/obj/samples/%.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) $(nvcc_flags) -o $@ $< -lpthread -ldl $(sample_libs)

# Linked with the simulated NCCL, run with the one that is in the loader's path.
$(OUT)/samples/collectives: $(OUT)/sim/libnccl.so.2
$(OUT)/samples/collectives: sample_libs = -L$(OUT)/sim -l:libnccl.so.2 -Xlinker -rpath-link=$(OUT)/sim

# The same with the runtime inside: the toolkit's, so that they run on any machine with a driver; and the simulated one, which runs on its own driver only.
$(OUT)/samples/%-static: $(OUT)/obj/samples/%.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) $(filter-out -cudart shared,$(nvcc_flags)) -cudart static -o $@ $< -lpthread -ldl

$(OUT)/samples/mlp-static-sim: $(OUT)/obj/samples/mlp.o $(OUT)/sim/libcudart_static.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) $(filter-out -cudart shared,$(nvcc_flags)) -cudart none -Xlinker --exclude-libs,ALL -o $@ $^ -lpthread -ldl

# Linked with the runtime of CUDA 12.
$(OUT)/samples/mlp-12: $(OUT)/obj/samples/mlp.o $(OUT)/sim12/libcudart.so.12
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) $(filter-out -cudart shared,$(nvcc_flags)) -cudart none -o $@ $< -Xlinker $(OUT)/sim12/libcudart.so.12 -lpthread -ldl

# Sample policies, built as a user builds one outside the tree.
$(sample_policies): $(OUT)/samples/%.so: tests/samples/%.c $(wildcard include/penstock/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=gnu11 -Iinclude -Wall -Wextra -Werror -O2 -fPIC -shared $(variant_flags) -o $@ $<

# --- the simulated device --------------------------------------------------------------------------------------------------------------
include tests/cudasim/build.mk
sim: $(SIM_LIBS)
$(SIM_LIBS): $(OUT)/sources
$(SIM_CUDA_OBJS) $(SIM_CUDART_OBJS) $(SIM_CUPTI_OBJS) $(SIM_NCCL_OBJS) $(SIM12_ANEW:%=$(OUT)/sim12/obj/%.o): $(OUT)/flags

# --- benchmarks ------------------------------------------------------------------------------------------------------------------------
include tests/bench/build.mk

# --- what people ask for ---------------------------------------------------------------------------------------------------------------
# demo and test start from nothing: set-up first, then a fresh make that sees the toolkit that set-up may just have made.
# As many jobs as there are cores, unless the person said how many.
jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))
pass := CC='$(CC)' SAN='$(SAN)' DEBUG='$(DEBUG)' MUTANT='$(MUTANT)'

setup:
	$(Q)scripts/dev/setup test

demo:
	$(Q)scripts/dev/demo --check
	$(Q)scripts/dev/setup build
	$(Q)$(MAKE) --no-print-directory $(jobs) all sim $(OUT)/samples/transformer
	$(Q)scripts/dev/demo $(OUT)

test:
	$(Q)scripts/dev/setup test
	$(Q)$(MAKE) --no-print-directory $(jobs) everything
	$(Q)scripts/dev/test --build $(OUT) $(TESTS)

test-all:
	$(Q)PENSTOCK_TEST_SEEDS=2000 $(MAKE) --no-print-directory test

check:
	$(Q)scripts/dev/setup test
	$(Q)$(MAKE) --no-print-directory $(jobs) $(OUT)/libpenstock.so $(tools)
	$(Q)scripts/dev/check --build $(OUT)

bench: everything
	$(Q)scripts/dev/bench $(OUT)

# --- installation ----------------------------------------------------------------------------------------------------------------------
# LIBDIR is where the library goes; `penstock` finds it in PREFIX's lib, lib64, lib/penstock or lib/x86_64-linux-gnu. ZSHDIR is in zsh's fpath.
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
programs := $(tools) scripts/command/penstock-advise scripts/command/penstock-help scripts/command/penstock-kernels scripts/command/penstock-report scripts/command/penstock-summary scripts/command/penstock-verify
modules := scripts/command/penstock_command.py scripts/command/penstock_files.py scripts/command/penstock_findings.py scripts/command/penstock_output.py scripts/command/penstock_reports.py scripts/command/penstock_text.py
public_headers := $(wildcard include/penstock/*.h)
# The README, and what it and these lead to.
documents := README.md CHANGELOG.md LICENSE include/penstock/README.md $(wildcard scripts/manual/*.md scripts/examples/*.* scripts/examples/*/*) \
    scripts/examples/Containerfile $(addsuffix /README.md,policy scripts shim tests tests/cudasim tests/recordings tests/results)
# MODE:FILE:PLACE
installed := 755:$(library):$(LIBDIR)/$(soname) 755:scripts/command/penstock:$(PREFIX)/bin/penstock \
    $(foreach file,$(programs),755:$(file):$(PREFIX)/libexec/penstock/$(notdir $(file))) \
    $(foreach file,$(modules),644:$(file):$(PREFIX)/libexec/penstock/$(notdir $(file))) \
    $(foreach file,$(report_page),644:$(file):$(PREFIX)/share/penstock/report-page/$(notdir $(file))) \
    $(foreach file,$(public_headers),644:$(file):$(PREFIX)/$(file)) \
    644:scripts/command/penstock.py:$(PREFIX)/share/penstock/penstock.py \
    $(foreach file,$(documents),644:$(file):$(PREFIX)/share/doc/penstock/$(file)) \
    $(foreach file,$(pages),644:$(file):$(PREFIX)/share/man/man$(patsubst .%,%,$(suffix $(file)))/$(notdir $(file))) \
    644:$(OUT)/completions/bash:$(PREFIX)/share/bash-completion/completions/penstock \
    644:$(OUT)/completions/zsh:$(ZSHDIR)/_penstock \
    644:$(OUT)/completions/fish:$(PREFIX)/share/fish/vendor_completions.d/penstock.fish

# What is made on the spot.
link := $(LIBDIR)/libpenstock.so
pkgconfig := $(PREFIX)/share/pkgconfig/penstock.pc

install: $(library) $(tools) $(pages) $(completions) $(report_page)
	$(Q)for entry in $(installed); do \
	    IFS=: read -r mode file place <<<"$$entry" && install -D -m "$$mode" "$$file" "$(DESTDIR)$$place" || exit; done
	$(Q)ln -sf $(soname) "$(DESTDIR)$(link)"
	$(Q)install -d "$(DESTDIR)$(dir $(pkgconfig))"
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e "s|@VERSION@|$$(scripts/packages/about version)|" \
	    scripts/packages/penstock.pc.in >"$(DESTDIR)$(pkgconfig)"
	@echo "penstock is installed under $(DESTDIR)$(PREFIX)"

# Directories of the name are this program's alone.
uninstall:
	$(Q)rm -f "$(DESTDIR)$(link)" "$(DESTDIR)$(pkgconfig)"
	$(Q)for entry in $(installed); do \
	    place="$(DESTDIR)$${entry##*:}"; rm -f "$$place"; dir=$${place%/*}; \
	    [ "$${dir##*/}" != report-page ] || { rmdir "$$dir" 2>/dev/null; dir=$${dir%/*}; }; \
	    [ "$${dir##*/}" != penstock ] || [ ! -d "$$dir" ] || rmdir --ignore-fail-on-non-empty "$$dir"; done
	$(Q)[ ! -d "$(DESTDIR)$(PREFIX)/share/doc/penstock" ] || find "$(DESTDIR)$(PREFIX)/share/doc/penstock" -depth -type d -empty -delete

# --- packages --------------------------------------------------------------------------------------------------------------------------
packages := $(OUT)/packages

dist:
	$(Q)scripts/packages/dist $(packages)

# Both are made of the installed files. Debian's has the library in a directory of its own instead of the loader's, because no program links with it.
deb: installed_at := PREFIX=/usr LIBDIR=/usr/lib/penstock ZSHDIR=/usr/share/zsh/vendor-completions
wheel: installed_at := PREFIX=/prefix LIBDIR=/prefix/lib ZSHDIR=/prefix/share/zsh/site-functions
# Debian's is built apart, with the flags that Debian (or a user who sets DEB_CFLAGS_APPEND and the like) builds packages with.
debian = $(shell DEB_BUILD_MAINT_OPTIONS=hardening=+all dpkg-buildflags --get $(1) 2>/dev/null)
deb: built_with = $(pass) OUT=$(OUT)/deb $(jobs) $(foreach name,CFLAGS CPPFLAGS LDFLAGS,$(if $(call debian,$(name)),$(name)='$(call debian,$(name))'))
deb: FORCE
wheel: $(library) $(tools) $(pages) $(completions) $(report_page)
deb wheel:
	$(Q)rm -rf $(packages)/$@
	$(Q)$(MAKE) --no-print-directory $(built_with) install DESTDIR='$(abspath $(packages)/$@)' $(installed_at) >/dev/null
	$(Q)scripts/packages/$@ $(packages)/$@ $(packages)
	$(Q)rm -rf $(packages)/$@

clean:
	$(Q)rm -rf build/release build/debug build/asan build/tsan build/mutant

# The toolkit and the set-up's stamps too.
distclean:
	$(Q)rm -rf build

help:
	@echo 'make            build the library and the command in $(OUT)'
	@echo 'make everything that, the simulated device, samples, unit tests and benchmarks'
	@echo 'make demo       set up, build, and show the main job on the simulated device'
	@echo 'make test       set up, build, and run the tests, of the longest files a part, by turns   (TESTS="memory orders unit" for some)'
	@echo 'make test-all   the same with 2,000 seeds instead of 80, and all of the longest files'
	@echo 'make check      style gates, exported symbols, purity of policy/'
	@echo 'make bench      benchmarks of the fast paths, learning and planning'
	@echo 'make install    PREFIX=/usr/local LIBDIR=PREFIX/lib DESTDIR=   (and make uninstall)'
	@echo 'make dist       a tarball of the sources; deb: a Debian package; wheel: a Python wheel; all in $(OUT)/packages'
	@echo 'make clean      remove what was built; distclean: the toolkit of scripts/dev/setup as well'
	@echo
	@echo 'V=1 shows commands. CC=gcc|clang. DEBUG=1, SAN=address|thread, MUTANT=1 build a variant under build/ of its own.'

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
