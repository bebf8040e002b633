#include "kernels/context_ends.h"

#include "cuda/capture.h"
#include "kernels/layouts.h"
#include "kernels/made_tables.h"
#include "kernels/module_variables.h"

void ps_kernels_context_ends(CUcontext context)
{
    ps_capture_uncounted_goes(NULL);
    if (!context)
        return;
    ps_layouts_module_gone();
    ps_module_variables_context_ends(context);
    ps_made_tables_context_ends(context);
}
