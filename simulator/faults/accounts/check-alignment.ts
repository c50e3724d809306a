import { isRecurrent, TAKEN_BACK_POSITIONS } from '../../../shared/model/model-shape.js';
import { usableDrafts } from '../../../shared/decisions/placement/draft-rows.js';
import type { AlignToken } from '../../../shared/wire/messages.js';
import type { AnswerAccount } from './answer-account.js';

/** Checks the messages to shadow for an answer: its begin once, each token once, each row of keys and values when it is due, its end once. */
export function checkAlignment(answer: AnswerAccount): string[] {
  const { events } = answer.account;
  const begins = events.filter((event) => event.kind === 'begin');
  const ends = new Map<string, number>();
  for (const event of events) if (event.kind === 'end') ends.set(event.to, (ends.get(event.to) ?? 0) + 1);
  const problems: string[] = [];
  const shadow = begins[0]?.kind === 'begin' ? begins[0].shadow : null;
  const receivers = [
    ...(answer.account.placement?.workers ?? []).map(({ id }) => id),
    ...(shadow === null ? [] : [shadow]),
  ];
  for (const id of receivers)
    if (ends.get(id) !== 1) problems.push(`${id} got ${ends.get(id) ?? 0} messages that the sequence has ended`);
  if (begins.length > 1) problems.push(`shadow got ${begins.length} messages that the sequence begins`);
  if (shadow === null) return problems;
  return [...problems, ...checkTokens(answer), ...checkRows(answer)];
}

/** Checks main's tokens, from the first one that shadow did not get with the sequence. */
function checkTokens({ account, settings, promptTokens, tokenIds, decodes }: AnswerAccount): string[] {
  const { events, passes } = account;
  const tokens = events.flatMap((event) => (event.kind === 'token' ? [event.token] : []));
  const known = events.reduce((most, event) => (event.kind === 'begin' ? event.begin.tokenIds.length : most), 0);
  const rowsAt = new Map(
    passes.flatMap(({ position, tokenIds: ran, of }) => {
      const decode = decodes.get(of) ?? null;
      return decode === null ? [] : [[decode, position + ran.length - decode] as const];
    }),
  );
  const problems: string[] = [];
  let at = 0;
  for (let position = Math.max(known, promptTokens); position < promptTokens + tokenIds.length - 1; position++) {
    const own: AlignToken[] = [];
    while (tokens[at]?.position === position) own.push(tokens[at++] as AlignToken);
    const rows = rowsAt.get(position) ?? 0;
    // Shadow must have the token before it drafts the next ones. In a joint pass this is possible but not certain, so the number of drafts is
    // not known in advance.
    const { drafting } = settings;
    const draftsFirst = drafting.rows !== 1 && (!drafting.optimistic || own[0]?.joint === true);
    const announcements = own.map(({ rows: announcedRows }) => announcedRows);
    const expected = rows === 0 ? [[0]] : draftsFirst ? [[rows], [0, rows]] : [[rows]];
    if (!expected.some((right) => right.join() === announcements.join()))
      problems.push(
        `the token at ${position}, where a pass of ${rows} rows begins, was sent with rows ${announcements.join() || 'never'}`,
      );
    for (const { tokenId } of own)
      if (tokenId !== tokenIds[position - promptTokens])
        problems.push(`another token at ${position} was sent to shadow`);
  }
  if (at < tokens.length) problems.push(`a token at ${tokens[at]?.position} was sent out of turn`);
  return problems;
}

/**
 * Checks the due rows of each layer after each pass: each row once, and again from the position where drafts were rejected. For a layer with a
 * recurrence, main has the rows of the pass and of some positions before it. Rows that shadow has retained from an earlier sequence are not
 * sent. The time of shadow's report decides which of them the last pass still sends, so the last ones may be missing.
 */
function checkRows({ account, settings, promptTokens, shape, decodes }: AnswerAccount): string[] {
  const { keyValuePeriod: period } = settings.align;
  const expected = shape.layers.map((): number[] => []);
  const sent = shape.layers.map((): number[] => []);
  let [begun, asked, hasPrefix] = [false, false, false];
  let [next, written, oldest] = [0, 0, 0];
  for (const event of account.events) {
    if (event.kind === 'begin') {
      [begun, next] = [true, 0];
      asked = (event.begin.prefixPositions ?? 0) > 0;
      hasPrefix ||= asked;
    }
    if (event.kind === 'prefixKept') [asked, next] = [false, event.positions];
    if (event.kind === 'rows')
      for (let row = 0; row < event.rows.rows; row++) sent[event.rows.layer]?.push(event.rows.position + row);
    if (event.kind !== 'pass') continue;
    const decode = decodes.get(event.of) ?? null;
    if (decode !== null && decode < written) next = Math.min(next, decode);
    written = event.position + event.tokenIds.length;
    oldest = Math.max(oldest, event.position - TAKEN_BACK_POSITIONS);
    if (!begun || asked || period === 0) continue;
    const answered = written - promptTokens;
    const due = answered <= 0 ? written : written - (answered % period);
    for (const [layer, { mixer }] of shape.layers.entries())
      for (let position = isRecurrent(mixer) ? Math.max(next, oldest) : next; position < due; position++)
        expected[layer]?.push(position);
    next = Math.max(next, due);
  }
  if (isComputedAgain(account)) return [];
  return expected.flatMap((positions, layer) => {
    const really = sent[layer] ?? [];
    const mixer = shape.layers[layer]?.mixer;
    const keepsLatest = mixer !== undefined && isRecurrent(mixer);
    const isRight = hasPrefix
      ? keepsLatest || positions.join().startsWith(really.join())
      : positions.join() === really.join();
    return isRight
      ? []
      : [`rows of layer ${layer} were sent for positions ${really.join()}; due were ${positions.join()}`];
  });
}

/** The sequence has given its memory back: then its passes do not tell which rows shadow got. */
function isComputedAgain({ passes }: AnswerAccount['account']): boolean {
  const created = passes.map(({ of, position }) => of.members.find((member) => member.position === position)?.created);
  return new Set(created).size > 1;
}

/** Checks the numbers of drafts that ran and of those that were right; each draft that ran must have come from shadow where main makes none. */
export function checkDrafts({ account, settings, tokenIds, finished, decodes }: AnswerAccount): string[] {
  const { drafting, prediction, align, main } = settings;
  // Under a logical cache each pass runs one token of an answer.
  const isOneByOne = main.quality.kind === 'cached';
  const { shadowRows, ownRows } = usableDrafts(drafting, prediction.source, align.tokenPeriod);
  if (isOneByOne || (shadowRows === 1 && ownRows === 1))
    return finished.drafts === null ? [] : ['drafts are counted where there are none'];
  const decode = account.passes.flatMap(({ position, tokenIds: ran, of }) => {
    const first = decodes.get(of) ?? null;
    return first === null ? [] : [position + ran.length - first];
  });
  const proposed = decode.reduce((sum, rows) => sum + rows - 1, 0);
  // The token sampled last is not run; if only the prompt runs, no token of the answer runs.
  const accepted = Math.max(0, tokenIds.length - 1) - decode.length;
  const problems: string[] = [];
  if (finished.drafts?.proposed !== proposed || finished.drafts.accepted !== accepted)
    problems.push(
      `${proposed} drafts were run and ${accepted} were accepted, main reports ${JSON.stringify(finished.drafts)}`,
    );
  // Main's own drafts come in no message.
  if (ownRows !== 1) return problems;
  const drafted = new Set<string>();
  for (const event of account.events) {
    if (event.kind === 'draftArrived') drafted.add(`${event.draft.position} ${event.draft.tokenId}`);
    if (event.kind !== 'pass') continue;
    const first = decodes.get(event.of) ?? null;
    if (first === null) continue;
    event.tokenIds.slice(first - event.position + 1).forEach((tokenId, index) => {
      const position = first + 1 + index;
      if (!drafted.has(`${position} ${tokenId}`))
        problems.push(`token ${tokenId} was run at ${position}, which nobody drafted`);
    });
  }
  return problems;
}
