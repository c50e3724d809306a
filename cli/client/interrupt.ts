const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Records an interruption. */
export interface Interruption {
  /** The signal that interrupted; null: none so far. */
  by: NodeJS.Signals | null;
}

/** withInterrupt, or a replacement for it. */
export type Interruptible = <Result>(
  run: (signal: AbortSignal, interruption: Readonly<Interruption>) => Promise<Result>,
) => Promise<Result>;

/**
 * Runs a function and aborts its signal on Ctrl-C (or SIGTERM). A second signal of either kind ends the process at once by that signal, even
 * if work still runs; a shell sees status 130 or 143.
 */
export async function withInterrupt<Result>(
  run: (signal: AbortSignal, interruption: Readonly<Interruption>) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const interruption: Interruption = { by: null };
  const interrupt = (signal: NodeJS.Signals): void => {
    if (!controller.signal.aborted) {
      interruption.by = signal;
      controller.abort();
      return;
    }
    // Not process.exit(), which waits for work that hangs in the system.
    for (const each of SIGNALS) process.removeAllListeners(each);
    process.kill(process.pid, signal);
  };
  for (const each of SIGNALS) process.on(each, interrupt);
  try {
    return await run(controller.signal, interruption);
  } finally {
    for (const each of SIGNALS) process.off(each, interrupt);
  }
}
