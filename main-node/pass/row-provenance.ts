/**
 * The workers that took part in the rows of a sequence, each with its first position; it is small, however many rows there are. When a worker is
 * found to give wrong values, this finds the rows that it took part in.
 */
export class RowProvenance {
  private readonly firstPositions = new Map<string, number>();

  /** The worker ran an expert for the row at this position. The lowest position of each worker counts. */
  took(workerId: string, position: number): void {
    const first = this.firstPositions.get(workerId);
    if (first === undefined || position < first) this.firstPositions.set(workerId, position);
  }

  has(workerId: string): boolean {
    return this.firstPositions.has(workerId);
  }

  /** The provenance of the first `positions` positions. */
  upTo(positions: number): RowProvenance {
    const part = new RowProvenance();
    for (const [id, first] of this.firstPositions) if (first < positions) part.firstPositions.set(id, first);
    return part;
  }

  get workerIds(): string[] {
    return [...this.firstPositions.keys()];
  }
}
