import { z } from 'zod';

const COUNTS_FORMAT = 'odmoe-activation-counts';
const COUNTS_FORMAT_VERSION = 1;
/** Most layers, and most experts of a layer: more than any model has, and so few that a file of counts stays small. */
const LARGEST_COUNT = 4096;

const countsSchema = z.strictObject({
  format: z.literal(COUNTS_FORMAT),
  format_version: z.literal(COUNTS_FORMAT_VERSION),
  pack_digest: z.string().regex(/^[0-9a-f]{64}$/),
  experts: z.int().positive().max(LARGEST_COUNT),
  layers: z.record(z.string().regex(/^(0|[1-9]\d{0,3})$/), z.array(z.int().nonnegative())),
});

/** Activations of each expert of each layer of one model, for planning. Counts only grow. */
export class ActivationCounts {
  private readonly countsByLayer = new Map<number, Float64Array>();

  constructor(
    /** Digest of the pack: counts of one model say nothing about another. */
    readonly packDigest: string,
    /** Experts of each layer. */
    readonly experts: number,
  ) {}

  /** Layers that have counts, ascending. */
  get layers(): number[] {
    return [...this.countsByLayer.keys()].sort((left, right) => left - right);
  }

  get total(): number {
    let total = 0;
    for (const counts of this.countsByLayer.values()) for (const count of counts) total += count;
    return total;
  }

  /** Adds activations. Experts outside the model are ignored. */
  add(layer: number, expert: number, activations: number): void {
    if (!Number.isSafeInteger(expert) || expert < 0 || expert >= this.experts) return;
    if (!Number.isSafeInteger(layer) || layer < 0 || layer >= LARGEST_COUNT) return;
    const counts = this.countsByLayer.get(layer) ?? new Float64Array(this.experts);
    counts[expert] = Math.min(Number.MAX_SAFE_INTEGER, (counts[expert] ?? 0) + activations);
    this.countsByLayer.set(layer, counts);
  }

  /** A copy; zeros for a layer without counts. */
  of(layer: number): Float64Array {
    return this.countsByLayer.get(layer)?.slice() ?? new Float64Array(this.experts);
  }

  /** Adds the counts of another record of the same model. */
  merge(other: ActivationCounts): void {
    for (const layer of other.layers) other.of(layer).forEach((count, expert) => this.add(layer, expert, count));
  }

  /** The form that parseActivationCounts reads. */
  toJson(): unknown {
    return {
      format: COUNTS_FORMAT,
      format_version: COUNTS_FORMAT_VERSION,
      pack_digest: this.packDigest,
      experts: this.experts,
      layers: Object.fromEntries(this.layers.map((layer) => [String(layer), [...this.of(layer)]])),
    };
  }
}

/** Null if the value is not a record of counts. */
export function parseActivationCounts(value: unknown): ActivationCounts | null {
  const parsed = countsSchema.safeParse(value);
  if (!parsed.success) return null;
  const { pack_digest: packDigest, experts, layers } = parsed.data;
  const counts = new ActivationCounts(packDigest, experts);
  for (const [layer, ofLayer] of Object.entries(layers)) {
    if (ofLayer.length !== experts || Number(layer) >= LARGEST_COUNT) return null;
    ofLayer.forEach((count, expert) => counts.add(Number(layer), expert, count));
  }
  return counts;
}
