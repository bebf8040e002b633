# The benchmark programs: $(OUT)/bench/bench_*. Included by the top Makefile, whose variables and rules for objects it uses.
bench_c := $(patsubst tests/bench/%.c,$(OUT)/bench/%,$(wildcard tests/bench/*.c))
bench_cu := $(patsubst tests/bench/%.cu,$(OUT)/bench/%,$(wildcard tests/bench/*.cu))

.PHONY: benches
benches: $(bench_c) $(bench_cu)

# It calls the runtime by functions of ours alone, which look for it among what is loaded.
$(OUT)/bench/bench_calls: bench_libs = -Wl,--no-as-needed

# The shim's objects are linked in, hooks and all, so that single functions can be called; behind them stands the simulated device.
$(bench_c): $(OUT)/bench/%: $(OUT)/obj/tests/bench/%.o $(test_archive) $(SIM_LIBS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(test_archive) $(bench_libs) $(OUT)/sim/libcudart.so.13 $(OUT)/sim/libcuda.so.1 $(system_libs)

$(OUT)/obj/bench/%.o: tests/bench/%.cu $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(nvcc_flags) -I. -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(bench_cu): $(OUT)/bench/%: $(OUT)/obj/bench/%.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) $(nvcc_flags) -o $@ $< -lpthread -ldl
