/** Mean number of uses of an expert from which on the counts of a layer say something, and at which they are halved. */
const LEAST_USES = 4;
const MOST_USES = 256;
/** Uses that each expert is taken to have had before any were counted, so that few counts do not promise too much. */
const ASSUMED_USES = 4;

/** The number of times that rows of answers have chosen each expert, the latest the most: counts are halved now and then. */
export class ExpertUses {
  private readonly counts: Float64Array;
  private readonly rows: Float64Array;
  private counted = 0;
  private readonly leastRows: number;
  private readonly mostRows: number;

  constructor(
    readonly shape: { readonly expertLayers: number; readonly experts: number; readonly expertsPerToken: number },
  ) {
    const { expertLayers, experts, expertsPerToken } = shape;
    this.counts = new Float64Array(expertLayers * experts);
    this.rows = new Float64Array(expertLayers);
    this.leastRows = (LEAST_USES * experts) / expertsPerToken;
    this.mostRows = (MOST_USES * experts) / expertsPerToken;
  }

  /** A layer's router has chosen. `choices`: rows x expertsPerToken; `isCounted`: for each row. */
  chosen(layer: number, choices: ArrayLike<number>, isCounted: (row: number) => boolean): void {
    const { experts, expertsPerToken } = this.shape;
    const rows = Math.floor(choices.length / expertsPerToken);
    for (let row = 0; row < rows; row += 1) {
      if (!isCounted(row)) continue;
      for (let rank = 0; rank < expertsPerToken; rank += 1) {
        const place = layer * experts + (choices[row * expertsPerToken + rank] ?? 0);
        this.counts[place] = (this.counts[place] ?? 0) + 1;
      }
      this.rows[layer] = (this.rows[layer] ?? 0) + 1;
      this.counted += 1;
    }
    if ((this.rows[layer] ?? 0) >= this.mostRows) this.halve(layer);
  }

  private halve(layer: number): void {
    const { experts } = this.shape;
    for (let place = layer * experts; place < (layer + 1) * experts; place += 1)
      this.counts[place] = (this.counts[place] ?? 0) / 2;
    this.rows[layer] = (this.rows[layer] ?? 0) / 2;
  }

  /** Rows of all layers since the start: equal numbers mean that the counts have not changed. */
  get countedRows(): number {
    return this.counted;
  }

  /** True if enough rows of each layer have been seen. */
  get isMeasured(): boolean {
    return this.rows.every((rows) => rows >= this.leastRows);
  }

  /** Probability that a row uses an expert: layers x experts. */
  probabilities(): Float64Array {
    const { experts, expertsPerToken } = this.shape;
    const assumedRows = (ASSUMED_USES * experts) / expertsPerToken;
    return this.counts.map((count, place) => {
      const rows = this.rows[Math.floor(place / experts)] ?? 0;
      return (count + ASSUMED_USES) / (rows + assumedRows);
    });
  }
}
