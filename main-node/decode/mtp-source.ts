import type { DraftHead } from '../../engine/generation/draft-head.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { DrafterRows } from '../batching/batch-member.js';
import { DraftAcceptance } from '../drafting/draft-acceptance.js';
import { type DraftProposal, type DraftSource, NO_DRAFTS } from './draft-source.js';
import type { HeadExperts } from './head-experts.js';
import { type Drafter, MtpDrafts } from './mtp-drafts.js';

/** Heads are trained to say what the model says next; the first drafts correct an assumption that is too high. */
const ASSUMED = [0.7];
const KIND = 0;
/** A draft costs a pass of the head; further ones are not made where they and all before them are right less often than this. */
const LEAST_CHANCE = 0.25;
/** A head whose first draft is right less often is asked once in so many passes, to notice when its drafts become better. */
const PASSES_UNTIL_RETRY = 16;

/** Rows with which a head begins whose experts workers run: each row has them load experts that answers and prompts do not need. */
const FIRST_ROWS_AT_WORKERS = 16;

/** The model's own head, and what its drafts have shown in all answers. */
export interface EngineHead {
  /** `signal`: ends what workers run for the drafter. */
  readonly head: { createDrafter(mostRows: number, signal: AbortSignal): Drafter };
  /** Workers that run the experts of the head; null: main runs them itself. */
  readonly workers: Pick<HeadExperts, 'isServed'> | null;
  readonly acceptance: DraftAcceptance;
}

/** `experts`: has workers run the experts of the head; null: the head has them itself. */
export function engineHead(head: DraftHead | null, experts: HeadExperts | null): EngineHead | null {
  if (head === null) return null;
  const createDrafter = (mostRows: number, signal: AbortSignal): Drafter =>
    experts === null ? head.createDrafter(mostRows) : drafterOfWorkers(head, mostRows, experts, signal);
  return { head: { createDrafter }, workers: experts, acceptance: new DraftAcceptance(ASSUMED) };
}

function drafterOfWorkers(head: DraftHead, mostRows: number, experts: HeadExperts, signal: AbortSignal): Drafter {
  const runs = experts.begin(signal);
  try {
    const drafter = head.createDrafter(mostRows, runs.run);
    return {
      feed: (position, states, nextTokens) => drafter.feed(position, states, nextTokens),
      draft: (most) => drafter.draft(most),
      dispose: () => {
        drafter.dispose();
        runs.end();
      },
    };
  } catch (thrown) {
    runs.end();
    throw thrown;
  }
}

export interface MtpSurroundings {
  readonly log: Pick<Logger, 'warn'>;
  /** The source has given the memory of its rows back, and the answer goes on. */
  readonly onFreed: () => void;
}

interface OpenProposal {
  position: number;
  tokenIds: readonly number[];
}

/**
 * Drafts of the model's own head (multi-token prediction). A head that fails drafts no more for this answer, and changes nothing else. Where workers run its
 * experts, it begins anew some passes later: workers come and go.
 */
export class MtpSource implements DraftSource {
  readonly maker = 'mtp';
  readonly isCostly = true;
  private readonly known: number[] = [];
  private readonly drafts: MtpDrafts;
  private readonly acceptance: DraftAcceptance;
  private open: OpenProposal | null = null;
  private hasFailed = false;
  private hasTold = false;
  /** Passes without drafts until a head whose workers have failed begins anew. */
  private pauseLeft = 0;
  private readonly ended = new AbortController();
  private readonly workers: EngineHead['workers'];
  private passesUnasked = 0;

  /** `mostRows`: rows of one pass of the head. */
  constructor(
    { head, workers, acceptance }: EngineHead,
    { hiddenSize, mostRows }: { hiddenSize: number; mostRows: number },
    private readonly around: MtpSurroundings,
  ) {
    this.workers = workers;
    this.acceptance = new DraftAcceptance(ASSUMED, acceptance);
    const firstRows = workers === null ? null : FIRST_ROWS_AT_WORKERS;
    const sizes = { hiddenSize, passRows: mostRows, firstRows };
    this.drafts = new MtpDrafts(
      () => head.createDrafter(mostRows, this.ended.signal),
      sizes,
      () => this.known,
      around.onFreed,
    );
  }

  get drafterRows(): DrafterRows | null {
    return this.hasFailed ? null : this.drafts.rows;
  }

  begin(promptIds: readonly number[]): void {
    this.known.push(...promptIds);
  }

  settled(position: number, tokenId: number): void {
    this.known.push(tokenId);
    const { open } = this;
    if (open === null) return;
    const place = position - open.position - 1;
    const right = open.tokenIds[place] === tokenId;
    this.acceptance.verified(KIND, place, right);
    if (!right || place + 1 === open.tokenIds.length) this.open = null;
  }

  get statesWanted(): number {
    return this.hasFailed || !this.isServed ? 0 : this.drafts.wantedRows;
  }

  takeStates(position: number, states: Float32Array): void {
    if (!this.hasFailed && this.isServed) this.drafts.takeStates(position, states);
  }

  async propose(position: number, limit: number, signal: AbortSignal): Promise<DraftProposal> {
    if (this.hasFailed || !this.isServed || this.pauses()) return NO_DRAFTS;
    const chances = this.chancesUpTo(limit);
    if (chances.length === 0) return NO_DRAFTS;
    const leave = onAbort(signal, () => this.ended.abort());
    try {
      const tokenIds = await this.drafts.draft(chances.length);
      this.open = tokenIds.length === 0 ? null : { position, tokenIds };
      return { tokenIds, chances: chances.slice(0, tokenIds.length) };
    } catch (thrown) {
      this.failed(toOdmoeError(thrown));
      return NO_DRAFTS;
    } finally {
      leave();
    }
  }

  preempted(): void {
    this.drafts.forget();
  }

  async end(): Promise<void> {
    this.ended.abort();
    await this.drafts.end();
  }

  /** Somebody can run the experts of the head. */
  private get isServed(): boolean {
    return this.workers === null || this.workers.isServed;
  }

  private pauses(): boolean {
    if (this.pauseLeft === 0) return false;
    this.pauseLeft -= 1;
    // The head is fed with the states of this pass first.
    if (this.pauseLeft === 1) this.drafts.restart();
    return this.pauseLeft > 0;
  }

  private failed({ code, message }: OdmoeError): void {
    const isOver = code === 'CANCELLED';
    this.hasFailed = isOver || this.workers === null || code === 'DEVICE_LOST';
    if (!this.hasFailed) this.pauseLeft = PASSES_UNTIL_RETRY;
    if (isOver || this.hasTold) return;
    this.hasTold = true;
    const { log } = this.around;
    if (this.hasFailed)
      log.warn("the model's own head has failed: it drafts no more for this answer", { error: message });
    else log.warn("the model's own head could not run: it drafts again later", { error: message });
  }

  private chancesUpTo(limit: number): number[] {
    if (this.acceptance.chance(KIND, 0) < LEAST_CHANCE && ++this.passesUnasked < PASSES_UNTIL_RETRY) return [];
    this.passesUnasked = 0;
    const chances: number[] = [];
    let reached = 1;
    while (chances.length < limit) {
      const chance = this.acceptance.chance(KIND, chances.length);
      reached *= chance;
      if (chances.length > 0 && reached < LEAST_CHANCE) break;
      chances.push(chance);
    }
    return chances;
  }
}
