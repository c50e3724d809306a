/**
 * Runs something that Ctrl-C (or SIGTERM) cancels through the signal it is given. A second Ctrl-C ends the process at once, as
 * without this.
 */
export async function withInterrupt<Result>(run: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const controller = new AbortController();
  const interrupt = (): void => controller.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    return await run(controller.signal);
  } finally {
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}
