/**
 * Rows of prompts that clients have had, so that the one that has had the fewest comes first. Who begins to wait stands where those
 * are that wait already: neither is time without a prompt saved up, nor is what was had long ago held against anybody.
 */
export class ClientShares {
  private readonly rows = new Map<string, number>();
  private waiting: ReadonlySet<string> = new Set();
  /** Of the client that had had the fewest when a pass was planned last. */
  private level = 0;

  /** Clients whose prompts wait, before a pass is planned. Returns what each has had. */
  enter(clients: Iterable<string>): ReadonlyMap<string, number> {
    const waiting = new Set(clients);
    for (const [client, rows] of this.rows) if (!waiting.has(client) && rows <= this.level) this.rows.delete(client);
    for (const client of waiting) {
      if (!this.waiting.has(client)) this.rows.set(client, Math.max(this.rows.get(client) ?? 0, this.level));
    }
    this.waiting = waiting;
    if (waiting.size > 0) this.level = Math.min(...[...waiting].map((client) => this.rows.get(client) ?? 0));
    return this.rows;
  }

  took(client: string, rows: number): void {
    this.rows.set(client, (this.rows.get(client) ?? 0) + rows);
  }
}
