import assert from 'node:assert/strict';
import { compileFormat } from '../../engine/output-format/format-grammar.js';
import { REMEMBERED_STATES_LIMIT } from '../../engine/output-format/format-limits.js';
import { shortestTexts } from '../../engine/output-format/shortest-texts.js';
import { TextAutomaton, type AutomatonState } from '../../engine/output-format/text-automaton.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

const LEVELS = 60;
const OPENINGS = [
  ['[1,', ']'],
  ['{"b":', '}'],
] as const;

function anyObject(): TextAutomaton {
  const { root, nodes } = compileFormat({
    alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema: '{"type":"object"}' }] }],
  });
  return new TextAutomaton(root, shortestTexts(nodes, new Uint8Array(256).fill(1)));
}

/** Lists and objects within one another, drawn: hardly two texts have the same states. */
function nestedObject(random: SeededRandom): string {
  const levels = Array.from({ length: LEVELS }, () => random.pick(OPENINGS));
  const ends = levels.map(([, end]) => end).reverse();
  return `{"a":${levels.map(([begin]) => begin).join('')}1${ends.join('')}}`;
}

function stateAfter(automaton: TextAutomaton, text: string): AutomatonState | null {
  let state = automaton.start;
  for (const byte of Buffer.from(text)) state = state === null ? null : automaton.next(state, byte);
  return state;
}

function statesReached(from: AutomatonState): number {
  const reached = new Set([from]);
  for (const { next, byTargets } of reached) {
    for (const state of [...next, ...byTargets.values()]) if (state !== null && state !== undefined) reached.add(state);
  }
  return reached.size;
}

describe('the automaton of an output format', () => {
  it('has a bounded number of states, however many texts it has read, and still reads correctly', () => {
    const automaton = anyObject();
    const random = new SeededRandom(1);
    const { start } = automaton;
    assert.ok(start !== null);
    let read = 0;
    for (let count = 0; count < 150; count++) {
      const text = nestedObject(random);
      read += text.length;
      const end = stateAfter(automaton, text);
      assert.ok(end?.isWhole === true && end.frames.length === 0, text);
      assert.notEqual(stateAfter(automaton, text.slice(0, -1))?.isWhole, true, text);
      assert.equal(stateAfter(automaton, `${text}}`), null, text);
    }
    assert.ok(read > 4 * REMEMBERED_STATES_LIMIT);
    assert.ok(statesReached(start) <= 2 * REMEMBERED_STATES_LIMIT, `${statesReached(start)} states`);
  });
});
