/** Weight files on the disk at a time, unless a layer needs more. */
const FILES_AT_A_TIME = 2;

/**
 * The weight file to bring while others are packed, so that the network does not wait for the processor; null: none, or there is no room for it.
 * `later`: what the files of the pack that come next are made from, in order; `present`: the weight files on the disk. Pure.
 */
export function fileAhead(later: Iterable<readonly string[]>, present: ReadonlySet<string>): string | null {
  if (present.size >= FILES_AT_A_TIME) return null;
  for (const names of later) {
    const missing = names.find((name) => !present.has(name));
    if (missing !== undefined) return missing;
  }
  return null;
}

/** Brings weight files when they are needed, and one of them ahead of that. */
export class FileArrivals {
  private ahead: { readonly name: string; readonly arrived: Promise<void> } | null = null;
  private readonly unwanted = new AbortController();

  /** `source`: the files that come (ComingFiles). */
  constructor(private readonly source: { bring(name: string, unwanted: AbortSignal): Promise<void> }) {}

  /** Rejects as `source.bring`, also for what has happened to the file while it came ahead. */
  async bring(name: string): Promise<void> {
    const { ahead } = this;
    if (ahead?.name !== name) return this.source.bring(name, this.unwanted.signal);
    this.ahead = null;
    return ahead.arrived;
  }

  /** Begins to bring a file that will be needed. One comes at a time. */
  begin(name: string): void {
    if (this.ahead !== null) return;
    const arrived = this.source.bring(name, this.unwanted.signal);
    // Whoever needs the file gets the failure.
    arrived.catch(() => undefined);
    this.ahead = { name, arrived };
  }

  /** What comes ahead is cut off, and may be continued by a later run. */
  async end(): Promise<void> {
    this.unwanted.abort();
    await this.ahead?.arrived.catch(() => undefined);
  }
}
