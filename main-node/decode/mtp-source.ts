import type { DraftHead } from '../../engine/generation/draft-head.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { DrafterRows } from '../batching/batch-member.js';
import { DraftAcceptance } from '../drafting/draft-acceptance.js';
import { MakingCosts } from '../drafting/making-costs.js';
import { type DraftEffort, type DraftProposal, type DraftSource, NO_DRAFTS } from './draft-source.js';
import type { HeadExperts } from './head-experts.js';
import { type Drafter, MtpDrafts } from './mtp-drafts.js';

/** Heads are trained to say what the model says next; the first drafts correct an assumption that is too high. */
const ASSUMED = [0.7];
const KIND = 0;
/** A draft costs a pass of the head; further ones are not made where they and all before them are right less often than this. */
const LEAST_CHANCE = 0.25;
/** A head whose workers have failed begins anew so many passes later. */
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
  readonly costs: MakingCosts;
}

/** `experts`: has workers run the experts of the head; null: the head has them itself. */
export function engineHead(head: DraftHead | null, experts: HeadExperts | null): EngineHead | null {
  if (head === null) return null;
  const createDrafter = (mostRows: number, signal: AbortSignal): Drafter =>
    experts === null ? head.createDrafter(mostRows) : drafterOfWorkers(head, mostRows, experts, signal);
  return {
    head: { createDrafter },
    workers: experts,
    acceptance: new DraftAcceptance(ASSUMED),
    costs: new MakingCosts(),
  };
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
  readonly nowMs: () => number;
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
  private readonly known: number[] = [];
  private readonly drafts: MtpDrafts;
  private readonly acceptance: DraftAcceptance;
  private open: OpenProposal | null = null;
  private hasFailed = false;
  private hasTold = false;
  /** Passes until a head whose workers have failed begins anew. */
  private pauseLeft = 0;
  private readonly ended = new AbortController();
  private readonly workers: EngineHead['workers'];
  private readonly costs: MakingCosts;
  /** The rows of a prompt come before the first drafts of an answer, so their time says little of later ones. */
  private hasDrafted = false;

  /** `mostRows`: rows of one pass of the head. */
  constructor(
    { head, workers, acceptance, costs }: EngineHead,
    { hiddenSize, mostRows }: { hiddenSize: number; mostRows: number },
    private readonly around: MtpSurroundings,
  ) {
    this.workers = workers;
    this.costs = costs;
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

  get effort(): DraftEffort {
    const { draftMs } = this.costs;
    return { draftMs, expected: (limit) => (this.mayDraft && !this.isMostlyWrong ? this.chancesUpTo(limit) : []) };
  }

  async propose(position: number, limit: number, signal: AbortSignal): Promise<DraftProposal> {
    const chances = this.mayDraft ? this.chancesUpTo(limit) : [];
    if (chances.length === 0) return NO_DRAFTS;
    const leave = onAbort(signal, () => this.ended.abort());
    try {
      const tokenIds = await this.draft(chances.length);
      this.open = tokenIds.length === 0 ? null : { position, tokenIds };
      return { tokenIds, chances: chances.slice(0, tokenIds.length) };
    } catch (thrown) {
      this.failed(toOdmoeError(thrown));
      return NO_DRAFTS;
    } finally {
      leave();
    }
  }

  passed(): void {
    if (this.pauseLeft === 0) return;
    this.pauseLeft -= 1;
    // The head is fed with the states of the next pass before it drafts.
    if (this.pauseLeft === 1) this.drafts.restart();
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

  private get mayDraft(): boolean {
    return !this.hasFailed && this.isServed && this.pauseLeft === 0;
  }

  private get isMostlyWrong(): boolean {
    return this.acceptance.chance(KIND, 0) < LEAST_CHANCE;
  }

  private async draft(most: number): Promise<number[]> {
    const begunMs = this.around.nowMs();
    const tokenIds = await this.drafts.draft(most);
    if (this.hasDrafted && tokenIds.length > 0) this.costs.made(tokenIds.length, this.around.nowMs() - begunMs);
    this.hasDrafted ||= tokenIds.length > 0;
    return tokenIds;
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
