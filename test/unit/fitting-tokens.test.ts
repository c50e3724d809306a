import assert from 'node:assert/strict';
import fc from 'fast-check';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import {
  cutText,
  divideRecorded,
  divideTokens,
  firstSequences,
  LEAST_TOKENS,
} from '../../engine/fitting/fitting-tokens.js';
import { chooseUnits, countForetold, countKnown, DISTANCES } from '../../engine/fitting/foretold-experts.js';
import { rowGroups } from '../../engine/fitting/record-layers.js';
import { asksReserved } from '../../engine/fitting/reserved-prompts.js';
import { piecesOf, tokensOfText, withoutReserved } from '../../engine/fitting/text-tokens.js';
import { RUNTIME } from '../wall.js';
import { refusal } from './tiny-pack.js';

const sequences = fc.array(fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 40 }), { maxLength: 60 });

describe('the tokens of a predictor', () => {
  it('are those of the text, in their order, in sequences that the context holds', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(), { maxLength: 2000 }),
        fc.integer({ min: 1, max: 2500 }),
        fc.integer({ min: 1, max: 700 }),
        (ids, tokens, maxPositions) => {
          const cut = cutText(ids, tokens, maxPositions);
          assert.deepEqual(cut.flat(), ids.slice(0, tokens));
          assert.ok(cut.every(({ length }) => length >= 1 && length <= Math.min(512, maxPositions)));
        },
      ),
    );
  });

  it('are whole sequences, as few as have the tokens', () => {
    fc.assert(
      fc.property(sequences, fc.integer({ min: 1, max: 1500 }), (all, tokens) => {
        const first = firstSequences(all, tokens);
        assert.deepEqual(first, all.slice(0, first.length));
        assert.ok(first.slice(0, -1).flat().length < tokens);
        assert.ok(first.flat().length >= tokens || first.length === all.length);
      }),
    );
  });

  it('are divided into those that are trained with, first, and one sequence of eight that is held back', () => {
    const all = Array.from({ length: 100 }, (_, index) => Array.from({ length: 20 + index }, () => index));
    const divided = divideTokens(all, 'a text');
    assert.deepEqual(
      [...divided.sequences].sort((a, b) => (a[0] ?? 0) - (b[0] ?? 0)),
      all,
    );
    const heldBack = all.filter((_, index) => index % 8 === 7);
    assert.deepEqual(divided.sequences.slice(-heldBack.length), heldBack);
    assert.equal(divided.tokens, all.flat().length);
    assert.equal(divided.trainedTokens, divided.tokens - heldBack.flat().length);
  });

  it('of recorded answers are divided by whole answers, of which about an eighth is held back', () => {
    const lengths = fc.array(fc.integer({ min: 1, max: 1500 }), { minLength: 20, maxLength: 40 });
    fc.assert(
      fc.property(lengths, fc.integer({ min: 1, max: 40 }), (some, atOnce) => {
        const answers = interleaved([...some, ...Array<number>(10).fill(700)], atOnce);
        const { sequences, tokens, trainedTokens } = divideRecorded(answers, 'a file');
        const rows = sequences.flat();
        assert.deepEqual(
          [...rows].sort((a, b) => a - b),
          answers.map((_, row) => row),
        );
        assert.equal(tokens, answers.length);
        const trained = new Set(rows.slice(0, trainedTokens).map((row) => answers[row]));
        const heldBack = rows.slice(trainedTokens).map((row) => answers[row]);
        assert.ok(heldBack.every((answer) => !trained.has(answer)));
        assert.ok(heldBack.length * 16 >= tokens && heldBack.length * 8 <= tokens);
      }),
    );
  });

  it('of a few long answers are divided by pieces', () => {
    for (const answers of [Array<number>(LEAST_TOKENS).fill(1), interleaved([5000, 5000], 1)]) {
      const { tokens, trainedTokens } = divideRecorded(answers, 'a file');
      assert.ok(trainedTokens < tokens && trainedTokens * 2 > tokens);
    }
  });

  it('are refused in words if they are too few', () => {
    assert.equal(LEAST_TOKENS, 8 * 512, 'a sequence is held back');
    const all = cutText(Array<number>(LEAST_TOKENS).fill(1), LEAST_TOKENS, 1_000_000);
    assert.ok(divideTokens(all, 'notes.txt').trainedTokens < LEAST_TOKENS);
    assert.throws(
      () => divideTokens([...all.slice(1), Array<number>(511).fill(1)], 'notes.txt'),
      refusal('USAGE', /^notes\.txt: 4095 tokens are too few.*at least 4096 are needed/),
    );
  });

  it('go through the model in passes of whole sequences', () => {
    fc.assert(
      fc.property(sequences, fc.integer({ min: 40, max: 90 }), (all, most) => {
        const groups = rowGroups(all, most);
        assert.deepEqual(
          groups.flatMap((group) => group.sequences),
          all,
        );
        let row = 0;
        for (const group of groups) {
          assert.equal(group.firstRow, row);
          assert.equal(group.rows, group.sequences.flat().length);
          assert.ok(group.rows <= most);
          row += group.rows;
        }
      }),
    );
  });

  it('have none of the prompts by which recall is measured', () => {
    for (const prompt of demoPrompts(MOST_PROMPTS)) {
      assert.ok(asksReserved(prompt), prompt);
      assert.ok(asksReserved(`A sum:  ${prompt.toUpperCase().replaceAll(' ', '\n ')} And more.`), prompt);
    }
    assert.ok(!asksReserved('Tell me a story about a lantern.'));
  });
});

/** The answer of each row: answers of these lengths, of which some give tokens in turn. */
function interleaved(lengths: readonly number[], atOnce: number): number[] {
  const rows: number[] = [];
  for (let first = 0; first < lengths.length; first += atOnce) {
    const some = lengths.slice(first, first + atOnce);
    for (let token = 0; token < Math.max(...some); token += 1) {
      for (const [index, length] of some.entries()) if (token < length) rows.push(first + index);
    }
  }
  return rows;
}

const PROMPT = 'Tell me a story about a fox.';

/** Each character is a token, and a text begins with token 1. */
const BY_CHARACTER = {
  encode: (text: string) => [1, ...BY_CHARACTER.encodeRendered(text)],
  encodeRendered: (text: string) => [...text].map((character) => character.codePointAt(0) ?? 0),
};
const ANY = { tokens: 1_000_000, vocabSize: 0x11_0000, signal: new AbortController().signal, runtime: RUNTIME };

describe('the text of a predictor', () => {
  it('is cut behind lines or spaces, and between characters where there are none', () => {
    assert.deepEqual([...piecesOf('one two\nthree four', 12)], ['one two\n', 'three four']);
    assert.deepEqual([...piecesOf('one two three', 9)], ['one two ', 'three']);
    assert.deepEqual([...piecesOf('abc\u{1F98A}d', 4)], ['abc', '\u{1F98A}d']);
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('a', ' ', '\n', '\u{1F98A}'), maxLength: 60 }),
        fc.integer({ min: 1, max: 9 }),
        (text, most) => {
          const pieces = [...piecesOf(text, most)];
          assert.equal(pieces.join(''), text);
          assert.ok(pieces.every(({ length }) => length >= 1 && length <= Math.max(2, most)));
        },
      ),
    );
  });

  it('has no prompt by which recall is measured, wherever it is cut', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 0, max: 30 }), (most, before) => {
        const text = `${'word '.repeat(before)}${PROMPT.replaceAll(' ', ' \n')} ${'word '.repeat(20)}`;
        const kept = [...withoutReserved(piecesOf(text, most))].join('');
        assert.ok(asksReserved(text) && !asksReserved(kept));
        assert.ok(kept.length >= text.length - PROMPT.length * 2 - 2 * most);
      }),
    );
  });

  it('gives as many tokens as are wanted, without those that the model lacks, until it is interrupted', async () => {
    const text = `${'ab '.repeat(4000)}${PROMPT}`;
    const whole = await tokensOfText(BY_CHARACTER, text, ANY);
    assert.equal(whole[0], 1);
    assert.ok(whole.length < text.length + 1 - PROMPT.length + 1);
    assert.ok(!whole.includes(PROMPT.charCodeAt(0)));
    assert.deepEqual(await tokensOfText(BY_CHARACTER, text, { ...ANY, tokens: 5 }), whole.slice(0, 5));
    const narrow = await tokensOfText(BY_CHARACTER, text, { ...ANY, tokens: 5, vocabSize: 98 });
    assert.deepEqual(narrow, [1, 97, 32, 97, 32]);
    await assert.rejects(
      tokensOfText(BY_CHARACTER, text, { ...ANY, signal: AbortSignal.abort() }),
      refusal('CANCELLED', /./),
    );
  });
});

describe('the sizes and the recall of a predictor', () => {
  it('are small: 256 units for the demo model, 64 for the shape of Qwen3-30B-A3B', () => {
    const distances = DISTANCES;
    assert.equal(chooseUnits({ hiddenSize: 128, experts: 8, layers: 8, distances }), 256);
    assert.equal(chooseUnits({ hiddenSize: 2048, experts: 128, layers: 48, distances }), 64);
    assert.equal(chooseUnits({ hiddenSize: 7168, experts: 256, layers: 58, distances }), 32);
  });

  it('count the chosen experts among the most probable ones of their distance', () => {
    // Two rows, two distances, four experts.
    const scores = Float32Array.of(0.9, 0.8, 0.1, 0, 0, 0, 0.5, 0.6, 0.1, 0.9, 0.2, 0.8, 0.7, 0.1, 0.1, 0.6);
    const chosen = Int32Array.of(1, 2, 3, 1);
    assert.equal(countForetold(scores, chosen, { rows: 2, index: 0, ahead: 2, experts: 4 }), 1 + 2);
    assert.equal(countForetold(scores, chosen, { rows: 2, index: 1, ahead: 2, experts: 4 }), 1 + 1);
  });

  it('count no row without choices', () => {
    const scores = Float32Array.of(0.9, 0.8, 0.1, 0, 0, 0, 0.5, 0.6);
    const chosen = Int32Array.of(-1, -1, 2, 3);
    assert.equal(countForetold(scores, chosen, { rows: 2, index: 0, ahead: 1, experts: 4 }), 2);
    assert.deepEqual([countKnown(chosen, 2), countKnown(Int32Array.of(0, 1), 1)], [1, 1]);
  });

  it('count each chosen expert where the scores are those of the choice', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 6 }).chain((rows) =>
          fc.tuple(
            fc.constant(rows),
            fc.array(fc.uniqueArray(fc.nat({ max: 7 }), { minLength: 3, maxLength: 3 }), {
              minLength: rows,
              maxLength: rows,
            }),
          ),
        ),
        ([rows, choices]) => {
          const scores = Float32Array.from(
            choices.flatMap((own) => Array.from({ length: 8 }, (_, e) => (own.includes(e) ? 1 : 0))),
          );
          const found = countForetold(scores, Int32Array.from(choices.flat()), {
            rows,
            index: 0,
            ahead: 1,
            experts: 8,
          });
          assert.equal(found, 3 * rows);
        },
      ),
    );
  });
});
