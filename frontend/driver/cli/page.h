/* Pages that need nothing else: nothing is fetched, they are legible without scripts, in light and
 * dark. */
#ifndef FRONTEND_DRIVER_CLI_PAGE_H
#define FRONTEND_DRIVER_CLI_PAGE_H

#include "frontend/driver/cli/cli.h"

void page_begin(StrBuf *s, Arena *a, const char *title); /* to its heading: a file by its name */
void page_text(StrBuf *s, const char *text);             /* as text, whatever it holds */
graphc_status page_end(Cli *c, StrBuf *s, const char *path); /* writes it */

#endif
