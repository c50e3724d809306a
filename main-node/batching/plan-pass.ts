/** Rows of each pass that prompts have in any case while answers go on, so that they come to their end; in small passes half of the rows. */
export const LEAST_PROMPT_CHUNK_ROWS = 8;

/** A sequence that has rows to run. */
export interface ReadyMember {
  /** The client that sent the request. */
  readonly client: string;
  /** Its rows [written, end) are to run; at least one. */
  readonly written: number;
  readonly end: number;
  /** Rows from this position on belong to the answer: its next token, and drafts after it. Earlier rows run in prompt chunks. */
  readonly decodeFrom: number;
  /** Number of the last pass that ran rows of this member; 0: none. */
  readonly lastPass: number;
}

export interface PassBudget {
  /** Most rows of the pass. */
  readonly maxRows: number;
  /** Most rows of prompt chunks. */
  readonly promptChunkRows: number;
}

/** The first `rows` rows of the member that are not written. */
export interface PlannedRows<Member> {
  readonly member: Member;
  readonly rows: number;
}

/**
 * Plans the rows of the next pass. `ready`: in the order of their arrival. `served`: rows of prompt chunks that each client has had.
 *
 * - Each answer gets its next token's row. If there are more answers than the budget, those come first whose last pass is longest ago.
 * - While prompts wait, LEAST_PROMPT_CHUNK_ROWS of the budget are theirs. A budget of one row goes to the member whose last pass is longest ago.
 * - Rows that answers leave of the budget are dealt to their drafts, one by one.
 * - Then come prompt chunks: the next one is of the client that has had the fewest rows, in order of arrival, and so on until nothing is left.
 *
 * So no member waits for ever: turns go round, and a client that is served falls behind those that wait.
 */
export function planMainPass<Member extends ReadyMember>(
  ready: readonly Member[],
  served: ReadonlyMap<string, number>,
  { maxRows, promptChunkRows }: PassBudget,
): PlannedRows<Member>[] {
  const answers = ready.filter((member) => isAnswer(member));
  const prompts = inFairOrder(
    ready.filter((member) => !isAnswer(member)),
    served,
    Math.min(maxRows, promptChunkRows),
  );
  const reserved = rowsReservedForPrompts(answers, prompts, maxRows);
  const answerRows = dealToAnswers(answers, maxRows - reserved);
  const dealt = answerRows.reduce((sum, { rows }) => sum + rows, 0);
  return [...answerRows, ...cutPromptChunks(prompts, Math.min(maxRows - dealt, promptChunkRows))];
}

export function isAnswer({ written, decodeFrom }: Pick<ReadyMember, 'written' | 'decodeFrom'>): boolean {
  return written >= decodeFrom;
}

function rowsOf({ written, end }: ReadyMember): number {
  return end - written;
}

function rowsReservedForPrompts(
  answers: readonly ReadyMember[],
  prompts: readonly ReadyMember[],
  maxRows: number,
): number {
  const [next] = prompts;
  if (next === undefined) return 0;
  if (maxRows > 1) return Math.min(LEAST_PROMPT_CHUNK_ROWS, Math.floor(maxRows / 2));
  return answers.every(({ lastPass }) => lastPass >= next.lastPass) ? 1 : 0;
}

/** Deals the budget to the answers; the result has the order of `answers`. */
function dealToAnswers<Member extends ReadyMember>(answers: readonly Member[], budget: number): PlannedRows<Member>[] {
  // Sorting keeps the order of arrival among equals.
  const turns = [...answers].sort((left, right) => left.lastPass - right.lastPass).slice(0, Math.max(0, budget));
  const rows = new Map(turns.map((member) => [member, 1]));
  let left = budget - turns.length;
  for (let row = 1; left > 0; row++) {
    const takers = turns.filter((member) => rowsOf(member) > row).slice(0, left);
    if (takers.length === 0) break;
    for (const member of takers) rows.set(member, row + 1);
    left -= takers.length;
  }
  return answers.flatMap((member) => {
    const dealt = rows.get(member);
    return dealt === undefined ? [] : [{ member, rows: dealt }];
  });
}

/** Orders the prompts, as far as `budget` rows reach: next comes the first prompt of the client that has had the fewest rows. */
function inFairOrder<Member extends ReadyMember>(
  prompts: readonly Member[],
  served: ReadonlyMap<string, number>,
  budget: number,
): Member[] {
  const waiting = [...prompts];
  const had = new Map(served);
  const order: Member[] = [];
  for (let left = budget; left > 0 && waiting.length > 0;) {
    let first = 0;
    const hadBy = (index: number): number => had.get(waiting[index]?.client ?? '') ?? 0;
    for (let index = 1; index < waiting.length; index++) if (hadBy(index) < hadBy(first)) first = index;
    for (const member of waiting.splice(first, 1)) {
      const rows = Math.min(left, rowsOf(member));
      had.set(member.client, (had.get(member.client) ?? 0) + rows);
      left -= rows;
      order.push(member);
    }
  }
  return order;
}

function cutPromptChunks<Member extends ReadyMember>(
  prompts: readonly Member[],
  budget: number,
): PlannedRows<Member>[] {
  const promptChunks: PlannedRows<Member>[] = [];
  let left = budget;
  for (const member of prompts) {
    if (left <= 0) break;
    const rows = Math.min(left, rowsOf(member));
    promptChunks.push({ member, rows });
    left -= rows;
  }
  return promptChunks;
}
