/*
 * Checks the device's gradients. A few entries of each parameter's gradient are compared with
 * difference quotients of the reference loss. That loss is computed in double precision, by code
 * that shares nothing with the kernels. Part of train.h.
 */
#ifndef PENSTOCK_SAMPLES_GRADCHECK_H
#define PENSTOCK_SAMPLES_GRADCHECK_H

#define GRADCHECK_ENTRIES 4
#define GRADCHECK_STEP 1e-5
/*
 * Single precision sums of some hundred terms agree to about 1e-5 of a parameter's largest
 * gradient. A wrong formula is off by far more.
 */
#define GRADCHECK_TOLERANCE 2e-4
#define GRADCHECK_LOSS_TOLERANCE 1e-5

/* Returns the entry of a parameter to check: the largest gradient first, then random entries. */
static inline size_t gradcheck_entry(const float *gradient, size_t count, unsigned turn)
{
    size_t largest = 0;

    if (turn > 0)
        return mix_bits(turn * 7919 + count) % count;
    for (size_t i = 1; i < count; i++)
        if (fabsf(gradient[i]) > fabsf(gradient[largest]))
            largest = i;
    return largest;
}

static inline double difference_quotient(const struct trainer *trainer, double *const *values, size_t parameter,
                                         size_t entry)
{
    double *value = &values[parameter][entry];
    const double before = *value;

    *value = before + GRADCHECK_STEP;
    const double above = trainer->model->reference_loss(trainer->options, values, trainer->input, trainer->target);
    *value = before - GRADCHECK_STEP;
    const double below = trainer->model->reference_loss(trainer->options, values, trainer->input, trainer->target);
    *value = before;
    return (above - below) / (2.0 * GRADCHECK_STEP);
}

/* Runs one step without an update and compares its gradients. Returns the program's exit status. */
static inline int check_gradients(struct trainer *trainer)
{
    const struct parameter_list *parameters = &trainer->parameters;
    struct step_result *result = &trainer->result[0];
    const float *gradient = reinterpret_cast<const float *>(result->gradient);
    double **values = static_cast<double **>(calloc(parameters->count, sizeof(*values)));
    double worst = 0.0;
    unsigned checked = 0;
    unsigned wrong = 0;

    REQUIRE(values != nullptr, "no host memory");
    for (size_t p = 0; p < parameters->count; p++) {
        float *host = download_parameter(&parameters->entry[p]);

        values[p] = static_cast<double *>(malloc(parameters->entry[p].count * sizeof(double)));
        REQUIRE(values[p] != nullptr, "no host memory");
        for (size_t i = 0; i < parameters->entry[p].count; i++)
            values[p][i] = static_cast<double>(host[i]);
        free(host);
    }
    run_workers(trainer, 0, true, result);
    finish_step(trainer, 0, result);
    CHECK(cudaDeviceSynchronize());

    const double loss = loss_of(trainer, result);
    const double expected = trainer->model->reference_loss(trainer->options, values, trainer->input, trainer->target);

    if (!(fabs(loss - expected) <= GRADCHECK_LOSS_TOLERANCE * fabs(expected))) {
        printf("loss %.9g, expected %.9g\n", loss, expected);
        wrong++;
    }
    for (size_t p = 0; p < parameters->count; p++) {
        const size_t count = parameters->entry[p].count;
        const double scale = fabs(static_cast<double>(gradient[gradcheck_entry(gradient, count, 0)]));

        /*
         * Every parameter of the trainers has an effect. Without this check, all-zero gradients
         * would agree with any small value.
         */
        if (!(scale > 0.0)) {
            printf("%s: no gradient\n", parameters->entry[p].name);
            wrong++;
        }
        for (unsigned turn = 0; turn < GRADCHECK_ENTRIES; turn++) {
            const size_t entry = gradcheck_entry(gradient, count, turn);
            const double quotient = difference_quotient(trainer, values, p, entry);
            const double error = fabs(quotient - static_cast<double>(gradient[entry])) / scale;

            checked++;
            worst = error > worst ? error : worst;
            if (!(error <= GRADCHECK_TOLERANCE)) {
                printf("%s[%zu]: gradient %.9g, expected %.9g\n", parameters->entry[p].name, entry,
                       static_cast<double>(gradient[entry]), quotient);
                wrong++;
            }
        }
        gradient += count;
    }
    for (size_t p = 0; p < parameters->count; p++)
        free(values[p]);
    free(values);
    printf("gradcheck: %u gradients of %zu parameters, worst error %.2g, %u wrong\n", checked, parameters->count, worst,
           wrong);
    return wrong == 0 ? 0 : 1;
}

#endif
