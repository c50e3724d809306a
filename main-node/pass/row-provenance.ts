/**
 * Which workers took part in the rows of a sequence, each from which position on: it is small, however many rows there are. Where a
 * worker proves to lie, its rows are found by it.
 */
export class RowProvenance {
  private readonly firstPositions = new Map<string, number>();

  /** The worker ran an expert for the row at this position, or a later one if it is named already. */
  took(workerId: string, position: number): void {
    const first = this.firstPositions.get(workerId);
    if (first === undefined || position < first) this.firstPositions.set(workerId, position);
  }

  has(workerId: string): boolean {
    return this.firstPositions.has(workerId);
  }

  /** Of the first so many positions. */
  upTo(positions: number): RowProvenance {
    const part = new RowProvenance();
    for (const [id, first] of this.firstPositions) if (first < positions) part.firstPositions.set(id, first);
    return part;
  }

  get workerIds(): string[] {
    return [...this.firstPositions.keys()];
  }
}
