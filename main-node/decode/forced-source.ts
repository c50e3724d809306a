import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSteps } from '../../shared/base/runtime/work-steps.js';
import type { DraftProposal, DraftSource } from './draft-source.js';

/** The bounds of an answer that follows a format. */
export interface ForcedAnswer {
  constraint: OutputConstraint;
  promptTokens: number;
  /** Most positions of prompt and answer together. */
  maxPositions: number;
  endTokenIds: readonly number[];
}

/** Drafts that are certain, because the answer's format leaves one token: punctuation of JSON, names that a schema forces. */
export class ForcedSource implements DraftSource {
  readonly maker = 'forced';
  private readonly answerIds: number[] = [];

  constructor(
    private readonly answer: ForcedAnswer,
    private readonly runtime: Pick<Runtime, 'nextTurn'>,
  ) {}

  begin(): void {
    this.answerIds.length = 0;
  }

  settled(_position: number, tokenId: number): void {
    this.answerIds.push(tokenId);
  }

  async propose(_position: number, limit: number, signal: AbortSignal): Promise<DraftProposal> {
    const { constraint, promptTokens, maxPositions, endTokenIds } = this.answer;
    const answer = [...this.answerIds];
    const tokenIds: number[] = [];
    while (tokenIds.length < limit && !signal.aborted && !constraint.isClosed(answer)) {
      const room = maxPositions - promptTokens - answer.length;
      const allowed = room < 1 ? null : await runInSteps(constraint.allowed(answer, room), this.runtime);
      const only = allowed === null ? null : onlyToken(allowed);
      // An end is not run.
      if (only === null || endTokenIds.includes(only)) break;
      tokenIds.push(only);
      answer.push(only);
    }
    return { tokenIds, chances: tokenIds.map(() => 1) };
  }
}

/** The only token that is allowed; null: several are, or none is. */
export function onlyToken(allowed: Uint8Array): number | null {
  const first = allowed.indexOf(1);
  return first < 0 || allowed.indexOf(1, first + 1) >= 0 ? null : first;
}
