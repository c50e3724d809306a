/** Lies that workers told, and when main set them aside for it. Times are on the virtual clock. */
export class LieWatch {
  private readonly lies: { worker: string; atMs: number }[] = [];
  private readonly found = new Map<string, number[]>();

  lied(worker: string, atMs: number): void {
    const last = this.lies.at(-1);
    if (last?.worker !== worker || last.atMs !== atMs) this.lies.push({ worker, atMs });
  }

  /** Main has set the worker aside: all that came from it is gone. */
  setAside(worker: string, atMs: number): void {
    this.found.set(worker, [...(this.found.get(worker) ?? []), atMs]);
  }

  /** True if the answer may hold a lie, told before its end, that main had not found when the answer was asked for. */
  mayHold({ askedMs, overMs }: { askedMs: number; overMs: number | null }): boolean {
    return this.lies.some(({ worker, atMs }) => {
      const isGone = (foundMs: number): boolean => foundMs >= atMs && foundMs <= askedMs;
      return atMs <= (overMs ?? Infinity) && !(this.found.get(worker) ?? []).some(isGone);
    });
  }
}
