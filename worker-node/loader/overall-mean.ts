/** Mean of all values added so far; 0 before the first. */
export class OverallMean {
  private count = 0;
  private sum = 0;

  add(value: number): void {
    this.count += 1;
    this.sum += value;
  }

  /** Makes the last value so much larger. */
  addToLast(value: number): void {
    this.sum += value;
  }

  get mean(): number {
    return this.count === 0 ? 0 : this.sum / this.count;
  }
}
