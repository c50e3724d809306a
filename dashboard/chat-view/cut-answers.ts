import { changeAnswer, chooseTurn, isRunning, withAll, type Answer, type PageConversation } from './conversation.js';

/** Marks answers as cut that are under way nowhere: a reload of their page ended them. `running`: ids of those under way. */
export function withCutAnswers(conversation: PageConversation, running: ReadonlySet<number>): PageConversation {
  const isCut = (turn: PageConversation['all'][number]): turn is Answer =>
    turn.kind === 'answer' && isRunning(turn) && !running.has(turn.id);
  if (!conversation.all.some(isCut)) return conversation;
  // The revision stays: a tab that was frozen, and goes on, has the newer copy.
  return withAll(
    conversation,
    conversation.all.map((turn) => (isCut(turn) ? withCut(turn) : turn)),
  );
}

function withCut(answer: Answer): Answer {
  const { came } = answer;
  return { ...answer, ...(came !== null && contentOf(came)), state: 'cut', progress: '', came: null };
}

/** Tells whether there is something that the same request could go on from. */
export function canGoOn({ state, text, reasoning }: Answer): boolean {
  return (state === 'cut' || state === 'failed' || state === 'stopped') && text + reasoning !== '';
}

/** Asks for an answer that has ended early again with its seed and settings. What had come stays shown until the new answer has come as far. */
export function goOn(conversation: PageConversation, answerId: number): PageConversation {
  const cut = conversation.all.find(({ id }) => id === answerId);
  if (cut?.kind !== 'answer' || !canGoOn(cut)) return conversation;
  return changeAnswer(chooseTurn(conversation, cut), answerId, (answer) => ({
    ...answer,
    state: 'waiting',
    text: '',
    reasoning: '',
    tokens: [],
    toolCalls: [],
    error: '',
    errorField: '',
    errorCode: '',
    finishReason: '',
    fingerprint: '',
    usage: null,
    firstMs: null,
    lastMs: null,
    came: answer,
  }));
}

/** The answer as it is shown: while it repeats a cut one, what had come. */
export function shownAnswer(answer: Answer): Answer {
  const { came } = answer;
  if (came === null) return answer;
  const { text, reasoning, tokens, toolCalls } = came;
  const progress = answer.progress === '' ? repeatedWords(answer, came) : answer.progress;
  return { ...answer, text, reasoning, tokens, toolCalls, progress };
}

function repeatedWords(answer: Answer, came: Answer): string {
  const [again, all] = [answer, came].map((each) => partsOf(each).join('').length);
  return `Goes over what had come: ${again} of ${all} characters`;
}

/**
 * Compares an answer with the cut one that it repeats. Once it has come as far, it takes its place. Where it differs, the cut one
 * becomes its sibling, so that nothing is lost. Where it ends before it has come as far, the cut one stays.
 */
export function withRepeated(conversation: PageConversation, answerId: number): PageConversation {
  const answer = conversation.all.find(({ id }) => id === answerId);
  if (answer?.kind !== 'answer' || answer.came === null) return conversation;
  const { came } = answer;
  const parts = partsOf(answer);
  const hasCome = partsOf(came).every((part, index) => parts[index]?.startsWith(part));
  if (hasCome) return changeAnswer(conversation, answerId, (each) => ({ ...each, came: null }));
  if (differs(answer, came) || answer.state === 'done') return withSibling(conversation, answer, came);
  if (isRunning(answer)) return conversation;
  return changeAnswer(conversation, answerId, (each) => ({ ...each, ...contentOf(came), state: 'cut', came: null }));
}

function contentOf(came: Answer): Partial<Answer> {
  const { text, reasoning, tokens, toolCalls, fingerprint, usage, firstMs, lastMs } = came;
  return { text, reasoning, tokens, toolCalls, fingerprint, usage, firstMs, lastMs };
}

/** The parts of an answer, each of which begins when the one before has ended. */
function partsOf({ reasoning, text, toolCalls }: Answer): [string, string, string] {
  return [reasoning, text, toolCalls.map(({ name, arguments: given }) => `${name}(${given}`).join(')')];
}

function differs(answer: Answer, came: Answer): boolean {
  const [parts, cameParts] = [partsOf(answer), partsOf(came)];
  const last = parts.findLastIndex((part) => part !== '');
  return parts.some((part, index) => {
    const before = cameParts[index] ?? '';
    return !agree(part, before) || (index < last && part.length < before.length);
  });
}

function agree(left: string, right: string): boolean {
  return left.startsWith(right) || right.startsWith(left);
}

function withSibling(conversation: PageConversation, answer: Answer, came: Answer): PageConversation {
  const { nextId } = conversation;
  const sibling: Answer = { ...came, id: nextId, revision: 0, came: null };
  const repeats = changeAnswer(conversation, answer.id, (each) => ({ ...each, came: null }));
  return withAll({ ...repeats, nextId: nextId + 1 }, [...repeats.all, sibling]);
}
