import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { DraftHeadSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { highestIds } from '../sampling/highest.js';
import { type RunExperts, runLayers } from './run-layers.js';
import { type LoadProgress, loadDenseWeights, loadResidentExperts } from '../loading/load-weights.js';

/** Rows of one pass of a head beside a cluster: those of a prompt are fed in several. */
export const HEAD_PASS_ROWS = 64;

/** A head that drafts tokens for a model (ModelShape.draftHead), on one device: with all its experts, or with none where others run them. */
export class DraftHead {
  private open = 0;

  private constructor(
    private readonly shape: ModelShape,
    /** Its sequences and passes are those of its drafters. */
    readonly model: Model,
  ) {}

  /** Number of drafters that are not disposed of. */
  get drafters(): number {
    return this.open;
  }

  /** `experts`: null: others run them, and none are loaded. @throws the errors of loadDenseWeights */
  static async load(
    device: Device,
    source: DraftHeadSource,
    format: WeightFormat,
    onProgress?: LoadProgress,
    experts: 'resident' | null = 'resident',
  ): Promise<DraftHead> {
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, format, onProgress);
      if (experts !== null) await loadResidentExperts(model, source, format, onProgress);
    } catch (thrown) {
      model.dispose();
      throw thrown;
    }
    return new DraftHead(source.shape, model);
  }

  /**
   * `mostRows`: rows of one pass of the head; more rows are fed in several. `runExperts`: runs the experts of a head that has none itself.
   * @throws OdmoeError DEVICE_OUT_OF_MEMORY; then nothing of it remains
   */
  createDrafter(mostRows: number, runExperts: RunExperts | null = null): HeadDrafter {
    const drafter = new HeadDrafter(this.model, this.shape, mostRows, {
      runExperts,
      onDisposed: () => {
        this.open -= 1;
      },
    });
    this.open += 1;
    return drafter;
  }

  /** Dispose of its drafters first. */
  dispose(): void {
    this.model.dispose();
  }
}

/**
 * Drafts the tokens of one sequence. Row i of the head is made from the model's last hidden state at position i and from the token at position i + 1, and
 * its logits are of the token at i + 2.
 */
export class HeadDrafter {
  private readonly cache: Sequence;
  private readonly feeding: Pass;
  private readonly chaining: Pass;
  /** Rows of the sequence itself; rows of drafts behind them are written again. */
  private fed = 0;
  private last: { logits: Float32Array; state: Float32Array } | null = null;

  constructor(
    model: Model,
    private readonly shape: ModelShape,
    private readonly mostRows: number,
    private readonly around: { readonly runExperts: RunExperts | null; readonly onDisposed: () => void },
  ) {
    const parts: { dispose(): void }[] = [];
    const made = <Part extends { dispose(): void }>(part: Part): Part => {
      parts.push(part);
      return part;
    };
    try {
      this.cache = made(model.createSequence());
      this.feeding = made(model.createPass(mostRows));
      this.chaining = made(model.createPass(1));
    } catch (thrown) {
      for (const part of parts.reverse()) part.dispose();
      throw thrown;
    }
  }

  /** Positions of which rows have been fed. */
  get length(): number {
    return this.fed;
  }

  /**
   * Feeds the rows from `position` on; those that were fed there before are forgotten. `states`: the model's last states behind its final norm, rows x
   * hiddenSize; `nextTokens`: the token behind each row's own.
   */
  async feed(position: number, states: Float32Array, nextTokens: readonly number[]): Promise<void> {
    const { hiddenSize } = this.shape;
    assertInvariant(position <= this.fed, 'the rows of a draft head follow one another.');
    assertInvariant(states.length === nextTokens.length * hiddenSize, 'each token has a state.');
    this.last = null;
    this.fed = position;
    for (let first = 0; first < nextTokens.length; first += this.mostRows) {
      const tokens = nextTokens.slice(first, first + this.mostRows);
      const own = states.subarray(first * hiddenSize, (first + tokens.length) * hiddenSize);
      await this.run(this.feeding, this.fed, tokens, own);
      this.fed += tokens.length;
      const isLast = first + tokens.length === nextTokens.length;
      if (isLast) this.last = await this.results(this.feeding, tokens.length - 1);
    }
  }

  /** The tokens that probably follow the last one that was fed, `most` at most. Nothing is drafted beyond the model's last position. */
  async draft(most: number): Promise<number[]> {
    const drafts: number[] = [];
    let { last } = this;
    while (last !== null && drafts.length < most) {
      const [token = 0] = highestIds(last.logits, 1);
      drafts.push(token);
      const position = this.fed + drafts.length - 1;
      if (drafts.length === most || position >= this.shape.maxPositions) break;
      await this.run(this.chaining, position, [token], last.state);
      last = await this.results(this.chaining, 0);
    }
    return drafts;
  }

  dispose(): void {
    this.feeding.dispose();
    this.chaining.dispose();
    this.cache.dispose();
    this.around.onDisposed();
  }

  private async run(pass: Pass, position: number, tokens: readonly number[], states: Float32Array): Promise<void> {
    const positions = Int32Array.from(tokens, (_, row) => position + row);
    await pass.begin([this.cache], new Int32Array(tokens.length), positions, Int32Array.from(tokens), states);
    const { runExperts } = this.around;
    if (runExperts === null) await pass.forward(null);
    else await runLayers(pass, this.shape, tokens.length, runExperts);
  }

  private async results(pass: Pass, row: number): Promise<{ logits: Float32Array; state: Float32Array }> {
    const rows = Int32Array.of(row);
    const isNormed = this.shape.draftHead?.chained === 'normed';
    return { logits: await pass.logits(rows), state: await pass.states(rows, isNormed) };
  }
}
