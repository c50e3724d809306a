/** Texts for training that the model makes itself: it makes up what a user could ask, and answers. All experts are in memory. */
import type { Model, Pass, Sequence } from '../../native/index.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { resolveSampling, type SamplingOptions } from '../../shared/wire/sampling-options.js';
import { chooseToken } from '../sampling/choose-token.js';
import { PASS_ROWS } from './record-layers.js';
import { asksReserved } from './reserved-prompts.js';
import { throwIfInterrupted } from './interruption.js';

/** Sequences that run together. */
const TOGETHER = 32;
/** Most tokens of a question. */
const QUESTION_TOKENS = 48;
/** Tokens of an answer; it goes on where the model ends it, as measurements of recall do. */
export const ANSWER_TOKENS = 256;
/** Questions are drawn as they come; answers are close to what the model answers. */
const QUESTION_TEMPERATURE = 1;
const ANSWER_TEMPERATURE = 0.7;
/** In place of a question, to find the text before it. */
const MARK = 'odmoemark';

/** The model that answers, and its tokens. */
export interface AnsweringModel {
  readonly model: Model;
  /** Null: the model makes up texts from single tokens. */
  readonly tokenizer: Tokenizer | null;
  readonly eosTokenIds: readonly number[];
  readonly vocabSize: number;
  readonly maxPositions: number;
  /** Aborts when nobody wants the answers any more. */
  readonly signal: AbortSignal;
}

/**
 * One batch of sequences, questions and answers. It depends on the model, the seed and the batch's number alone. A batch may be empty, where
 * the model made up nothing usable.
 * @throws CANCELLED
 */
export async function answerBatch(answering: AnsweringModel, seed: number, batch: number): Promise<number[][]> {
  const { tokenizer } = answering;
  const random = new SeededRandom(seed).fork(`batch ${batch}`);
  const prompts = await drawPrompts(answering, random);
  const room = answering.maxPositions - Math.max(0, ...prompts.map((prompt) => prompt.length));
  const tokens = Math.min(ANSWER_TOKENS, room);
  if (prompts.length === 0 || tokens < 1) return [];
  const answers = await continueAll(answering, prompts, tokens, samplings(random, prompts.length, ANSWER_TEMPERATURE));
  const sequences = prompts.map((prompt, index) => [...prompt, ...(answers[index] ?? [])].slice(0, PASS_ROWS));
  // An answer that goes on behind its end may ask a question of its own.
  return sequences.filter((ids) => tokenizer === null || !asksReserved(tokenizer.decode(ids)));
}

/** Token ids of prompts, each a question in the model's chat template; without a template, the tokens that a text begins with. */
async function drawPrompts(answering: AnsweringModel, random: SeededRandom): Promise<number[][]> {
  const { tokenizer, vocabSize } = answering;
  if (tokenizer === null) return Array.from({ length: TOGETHER }, () => [random.int(vocabSize)]);
  const before = textBeforeQuestion(tokenizer);
  if (before === null) {
    const begin = tokenizer.encode('').filter((id) => id < vocabSize);
    return Array.from({ length: TOGETHER }, () => (begin.length > 0 ? begin : [random.int(vocabSize)]));
  }
  const begin = tokenizer.encodeRendered(before);
  const drawn = await continueAll(
    answering,
    Array.from({ length: TOGETHER }, () => begin),
    QUESTION_TOKENS,
    samplings(random, TOGETHER, QUESTION_TEMPERATURE),
  );
  const questions = drawn.map((ids) => questionOf(ids, tokenizer, answering.eosTokenIds));
  return questions
    .filter((question) => question !== '' && !asksReserved(question))
    .map((content) => tokenizer.encodeChat([{ role: 'user', content }], { values: {}, wallMs: 0 }))
    .filter((ids) => ids.every((id) => id < vocabSize));
}

/** The text that the chat template writes before a user's words; null: the model has no template, or one that hides them. */
function textBeforeQuestion(tokenizer: Tokenizer): string | null {
  if (!tokenizer.hasChatTemplate) return null;
  const rendered = tokenizer.renderChat([{ role: 'user', content: MARK }], { values: {}, wallMs: 0 });
  const place = rendered.indexOf(MARK);
  return place < 0 ? null : rendered.slice(0, place);
}

/** The words before the first token that ends a turn. */
function questionOf(ids: readonly number[], tokenizer: Tokenizer, eosTokenIds: readonly number[]): string {
  const end = ids.findIndex((id) => eosTokenIds.includes(id) || tokenizer.isSpecial(id));
  return tokenizer.decode(end < 0 ? ids : ids.slice(0, end)).trim();
}

function samplings(random: SeededRandom, count: number, temperature: number): SamplingOptions[] {
  const message = { temperature, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
  return Array.from({ length: count }, () => resolveSampling(message, () => random.int(2 ** 32)));
}

/** So many tokens after each of the beginnings. */
async function continueAll(
  { model, maxPositions, signal }: AnsweringModel,
  beginnings: readonly (readonly number[])[],
  tokens: number,
  sampling: readonly SamplingOptions[],
): Promise<number[][]> {
  const sequences: Sequence[] = [];
  const passes: Pass[] = [];
  const createPass = (rows: number): Pass => {
    const pass = model.createPass(rows);
    passes.push(pass);
    return pass;
  };
  try {
    beginnings.forEach(() => sequences.push(model.createSequence()));
    const answers: number[][] = beginnings.map(() => []);
    const take = (index: number, logits: Float32Array): void => {
      const history = (beginnings[index]?.length ?? 0) + (answers[index]?.length ?? 0);
      answers[index]?.push(chooseToken(logits, history, sampling[index] as SamplingOptions));
    };
    const prompting = createPass(PASS_ROWS);
    for (const [index, ids] of beginnings.entries()) {
      throwIfInterrupted(signal);
      take(index, await prefill(prompting, sequences[index] as Sequence, ids));
    }
    const decoding = createPass(beginnings.length);
    const longest = Math.min(tokens, maxPositions - Math.max(...beginnings.map(({ length }) => length)));
    for (let count = 1; count < longest; count += 1) {
      throwIfInterrupted(signal);
      const positions = Int32Array.from(beginnings, ({ length }) => length + count - 1);
      const last = Int32Array.from(answers, (answer) => answer[count - 1] ?? 0);
      const rows = Int32Array.from(answers.keys());
      await decoding.begin(sequences, rows, positions, last);
      await decoding.forward(null);
      const logits = await decoding.logits(rows);
      const vocabulary = logits.length / rows.length;
      for (const row of rows) take(row, logits.subarray(row * vocabulary, (row + 1) * vocabulary));
    }
    return answers;
  } finally {
    for (const pass of passes) pass.dispose();
    for (const sequence of sequences) sequence.dispose();
  }
}

/** Runs the beginning of a sequence. Returns the logits after its last token. */
async function prefill(pass: Pass, sequence: Sequence, ids: readonly number[]): Promise<Float32Array> {
  let last = 0;
  for (let start = 0; start < ids.length; start += PASS_ROWS) {
    const chunk = ids.slice(start, start + PASS_ROWS);
    last = chunk.length - 1;
    const positions = Int32Array.from(chunk, (_, row) => start + row);
    await pass.begin([sequence], new Int32Array(chunk.length), positions, Int32Array.from(chunk));
    await pass.forward(null);
  }
  return pass.logits(Int32Array.of(last));
}
