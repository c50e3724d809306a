import { MOST_DRAFTS } from '../drafting/choose-drafts.js';
import { DraftAcceptance } from '../drafting/draft-acceptance.js';
import { PromptLookup } from '../drafting/prompt-lookup.js';
import { type DraftProposal, type DraftSource, NO_DRAFTS } from './draft-source.js';

/** Lengths of the match from which on a draft is of the next kind, and what is assumed of a kind: the longer the match, the surer the draft. */
const KINDS_FROM = [2, 4, 8, 16] as const;
const ASSUMED = [0.2, 0.3, 0.5, 0.7, 0.85];
/** Drafts behind a single token are proposed from this chance on. In most texts they are wrong; where words are repeated, they are right. */
const LEAST_CHANCE_ALONE = 0.5;

/** Tokens of a prompt, its last ones, and of an expected text that are looked up. They are taken in one turn of the event loop. */
const MOST_PROMPT_TOKENS = 32_768;

interface OpenProposal {
  position: number;
  tokenIds: readonly number[];
  kind: number;
}

/** How often lookup's drafts prove right, for all answers together. */
export function lookupAcceptance(): DraftAcceptance {
  return new DraftAcceptance(ASSUMED);
}

/** Kind of a draft by the length of its match in tokens. */
export function lookupKind(matchLength: number): number {
  return KINDS_FROM.filter((from) => matchLength >= from).length;
}

/**
 * Drafts that stand in prompt or answer, behind the same tokens. What it would have proposed is compared with the answer whether a pass ran it or not,
 * so that its chances are known before the first draft runs.
 */
export class LookupSource implements DraftSource {
  readonly maker = 'lookup';
  private readonly lookup = new PromptLookup();
  private readonly acceptance: DraftAcceptance;
  /** Proposals that have proved right so far, and are not compared to their ends. */
  private open: OpenProposal[] = [];

  /** `expected`: tokens that the client expects in the answer. */
  constructor(shared: DraftAcceptance, expected: readonly number[] = []) {
    this.acceptance = new DraftAcceptance(ASSUMED, shared);
    if (expected.length > 0) this.lookup.expect(expected.slice(0, MOST_PROMPT_TOKENS));
  }

  begin(promptIds: readonly number[]): void {
    for (const tokenId of promptIds.slice(-MOST_PROMPT_TOKENS)) this.lookup.append(tokenId);
  }

  settled(position: number, tokenId: number): void {
    this.lookup.append(tokenId);
    this.open = this.open.filter((proposal) => this.compare(proposal, position, tokenId));
  }

  propose(position: number, limit: number): DraftProposal {
    const { tokenIds, matchLength } = this.lookup.propose(MOST_DRAFTS);
    if (tokenIds.length === 0) return NO_DRAFTS;
    const kind = lookupKind(matchLength);
    this.open.push({ position, tokenIds, kind });
    if (matchLength === 1 && this.acceptance.chance(kind, 0) < LEAST_CHANCE_ALONE) return NO_DRAFTS;
    const proposed = tokenIds.slice(0, limit);
    return { tokenIds: proposed, chances: proposed.map((_, place) => this.acceptance.chance(kind, place)) };
  }

  /** Returns true if the proposal is to be compared further. */
  private compare({ position: from, tokenIds, kind }: OpenProposal, position: number, tokenId: number): boolean {
    const place = position - from - 1;
    if (place < 0 || place >= tokenIds.length) return false;
    const right = tokenIds[place] === tokenId;
    this.acceptance.verified(kind, place, right);
    return right && place + 1 < tokenIds.length;
  }
}
