import type { DraftHead } from '../../engine/generation/draft-head.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { DraftAcceptance } from '../drafting/draft-acceptance.js';
import { type DraftProposal, type DraftSource, NO_DRAFTS } from './draft-source.js';
import { type Drafter, MtpDrafts } from './mtp-drafts.js';

/** Heads are trained to say what the model says next; the first drafts correct an assumption that is too high. */
const ASSUMED = [0.7];
const KIND = 0;
/** A draft costs a pass of the head; further ones are not made where they and all before them are right less often than this. */
const LEAST_CHANCE = 0.25;
/** A head whose first draft is right less often is asked once in so many passes, to notice when its drafts become better. */
const PASSES_UNTIL_RETRY = 16;

/** The model's own head, and what its drafts have shown in all answers. */
export interface EngineHead {
  readonly head: { createDrafter(mostRows: number): Drafter };
  readonly acceptance: DraftAcceptance;
}

export function engineHead(head: DraftHead | null): EngineHead | null {
  return head && { head, acceptance: new DraftAcceptance(ASSUMED) };
}

interface OpenProposal {
  position: number;
  tokenIds: readonly number[];
}

/** Drafts of the model's own head (multi-token prediction). A head that fails drafts no more for this answer, and changes nothing else. */
export class MtpSource implements DraftSource {
  readonly maker = 'mtp';
  readonly isCostly = true;
  private readonly known: number[] = [];
  private readonly drafts: MtpDrafts;
  private readonly acceptance: DraftAcceptance;
  private open: OpenProposal | null = null;
  private hasFailed = false;
  private passesUnasked = 0;

  /** `mostRows`: rows of one pass of the head. */
  constructor(
    { head, acceptance }: EngineHead,
    { hiddenSize, mostRows }: { hiddenSize: number; mostRows: number },
    private readonly log: Pick<Logger, 'warn'>,
  ) {
    this.acceptance = new DraftAcceptance(ASSUMED, acceptance);
    const sizes = { hiddenSize, passRows: mostRows };
    this.drafts = new MtpDrafts(
      () => head.createDrafter(mostRows),
      sizes,
      () => this.known,
    );
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

  takeStates(position: number, states: Float32Array): void {
    if (!this.hasFailed) this.drafts.takeStates(position, states);
  }

  async propose(position: number, limit: number): Promise<DraftProposal> {
    const chances = this.chancesUpTo(limit);
    if (this.hasFailed || chances.length === 0) return NO_DRAFTS;
    try {
      const tokenIds = await this.drafts.draft(chances.length);
      this.open = tokenIds.length === 0 ? null : { position, tokenIds };
      return { tokenIds, chances: chances.slice(0, tokenIds.length) };
    } catch (thrown) {
      this.hasFailed = true;
      this.log.warn("the model's own head has failed: it drafts no more for this answer", {
        error: toOdmoeError(thrown).message,
      });
      return NO_DRAFTS;
    }
  }

  async end(): Promise<void> {
    await this.drafts.end();
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
