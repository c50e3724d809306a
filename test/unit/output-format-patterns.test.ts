import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import type { ByteMachine } from '../../engine/output-format/byte-machine.js';
import { machineTarget } from '../../engine/output-format/byte-machine.js';
import {
  automatonAccepts,
  withLength,
  type CharacterAutomaton,
} from '../../engine/output-format/character-automaton.js';
import { patternAutomaton, PatternWork } from '../../engine/output-format/pattern-automaton.js';
import { jsonCharacterMachine } from '../../engine/output-format/character-bytes.js';
import { codePointsOf, contains } from '../../engine/output-format/code-points.js';
import { decimalOf } from '../../engine/output-format/number-multiples.js';
import { commonNumbers } from '../../engine/output-format/schema-rules.js';
import {
  ANY_NUMBER,
  hasNumber,
  isInNumberRule,
  numberMachine,
  type NumberRule,
} from '../../engine/output-format/number-machine.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

function machineAccepts(machine: ByteMachine, text: string): boolean {
  let at = 0;
  for (const byte of new TextEncoder().encode(text)) {
    const state = machine.states[at];
    at = state === undefined ? -1 : machineTarget(state, byte);
    if (at < 0) return false;
  }
  return machine.states[at]?.isFinal ?? false;
}

const ATOMS = [
  'a',
  'b',
  'c',
  'é',
  '🦊',
  '.',
  '\\d',
  '\\w',
  '\\s',
  '\\D',
  '\\W',
  '\\S',
  '[ab]',
  '[^a]',
  '[a-c1]',
  '[^\\d\\s]',
];
const MORE_ATOMS = [
  '\\.',
  '\\n',
  '\\x61',
  '\\u00e9',
  '\\u{1f98a}',
  '\\ud83e\\udd8a',
  '[\\]\\-]',
  '^',
  '$',
  '(?:)',
  '\\cJ',
  '\\0',
  '[^]',
  '[]',
  '\\p{L}',
  '\\P{Lowercase}',
  '[\\p{Nd}_]',
  '\\p{Script=Greek}',
];
const QUANTIFIERS = ['', '', '', '*', '+', '?', '{2}', '{1,2}', '{0,3}', '{2,}', '*?', '+?', '??', '{1,2}?'];

function drawPattern(random: SeededRandom, depth: number): string {
  const one = (): string => {
    const atom =
      depth > 0 && random.chance(0.3) ? drawGroup(random, depth) : random.pick([...ATOMS, ...ATOMS, ...MORE_ATOMS]);
    return atom === '^' || atom === '$' || /^\(\?[=!]/.test(atom) ? atom : atom + random.pick(QUANTIFIERS);
  };
  const sequence = (): string => Array.from({ length: random.int(4) }, one).join('');
  return Array.from({ length: random.chance(0.3) ? 2 : 1 }, sequence).join('|');
}

function drawGroup(random: SeededRandom, depth: number): string {
  if (random.chance(0.25))
    return `(?${random.pick(['=', '!'])}${drawPattern(random, depth - 1).replaceAll('^', 'a?')})`;
  return `(${random.pick(['', '?:', `?<n${random.int(2 ** 40)}>`])}${drawPattern(random, depth - 1)})`;
}

const CHARACTERS = ['a', 'b', 'c', '1', 'é', '🦊', ' ', '\n', '.', ']', '-', '\0', '_', '\u2028'];

/** Null: the pattern takes too many steps, as lookaheads in repeats may. */
function automatonOf(source: string): CharacterAutomaton | null {
  try {
    return patternAutomaton(source, 'it', new PatternWork());
  } catch (thrown) {
    assert.match(String(thrown), /takes over \d+ steps|over \d+ states/, source);
    return null;
  }
}

describe('regular expression patterns in schemas', () => {
  it("match what JavaScript's regular expressions match", () => {
    const random = new SeededRandom(1);
    let [matched, tooLarge] = [0, 0];
    for (let count = 0; count < 1500; count++) {
      const source = drawPattern(random, 2);
      const expression = new RegExp(source, 'u');
      const automaton = automatonOf(source);
      if (automaton === null) {
        tooLarge += 1;
        continue;
      }
      for (let texts = 0; texts < 20; texts++) {
        const text = Array.from({ length: random.int(6) }, () => random.pick(CHARACTERS)).join('');
        const expected = expression.test(text);
        matched += expected ? 1 : 0;
        assert.equal(automatonAccepts(automaton, text), expected, `/${source}/u and ${JSON.stringify(text)}`);
      }
    }
    assert.ok(tooLarge < 15, `${tooLarge} patterns took too many steps`);
    assert.ok(matched > 3000 && matched < 27_000, `${matched} of 30000 texts matched`);
  });

  it('may begin a lookahead with ^ where the text begins', () => {
    const random = new SeededRandom(3);
    const sources = [
      '^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$',
      '^(?=^a|b)[ab]+$',
      '^(?!(?=a)b|^c)(?=(?!^b)).',
      'a|^(?=^^b)b|(?:^(?!^a)[ab])+$',
    ];
    for (const source of sources) {
      const automaton = patternAutomaton(source, 'it', new PatternWork());
      let matched = 0;
      for (let texts = 0; texts < 400; texts++) {
        const text = Array.from({ length: random.int(5) }, () => random.pick([...'abc01.-+'])).join('');
        const expected = new RegExp(source, 'u').test(text);
        matched += expected ? 1 : 0;
        assert.equal(automatonAccepts(automaton, text), expected, `/${source}/u and ${JSON.stringify(text)}`);
      }
      assert.ok(matched > 10 && matched < 390, `/${source}/u: ${matched}`);
    }
  });

  it('check lengths in characters', () => {
    const random = new SeededRandom(2);
    for (let count = 0; count < 300; count++) {
      const source = drawPattern(random, 1);
      const [least, more] = [random.int(4), random.pick([0, 1, 3, Infinity])];
      const automaton = withLength(
        patternAutomaton(source, 'it', new PatternWork()),
        { least, most: least + more },
        'it',
      );
      for (let texts = 0; texts < 20; texts++) {
        const characters = Array.from({ length: random.int(7) }, () => random.pick(CHARACTERS));
        const text = characters.join('');
        const fits = characters.length >= least && characters.length <= least + more;
        assert.equal(
          automatonAccepts(automaton, text),
          fits && new RegExp(source, 'u').test(text),
          `/${source}/ ${text}`,
        );
      }
    }
  });

  it('are refused by name where they are not supported', () => {
    const refused: [string, RegExp][] = [
      ['(?=a)*', /lookahead with a quantifier/],
      ['a(?!^b)', /\^ in a lookahead/],
      ['^(?=a^)', /\^ in a lookahead/],
      ['^(?=(?:^a)*b)', /\^ in a lookahead/],
      ['^(?=^*a)', /anchor with a quantifier/],
      ['(?<=a)b', /lookbehind/],
      ['(?<!a)b', /lookbehind/],
      ['(a)\\1', /back reference \\1/],
      ['(?<n>a)\\k<n>', /back reference \\k/],
      ['\\bword', /word boundary/],
      ['\\p{Nonsense}', /Unicode property/],
      ['\\p{L', /Unicode property/],
      ['\\pL', /Unicode property/],
      ['(?i:a)', /group \(\?i/],
      ['(', /end where something must follow|without a \)/],
      [')', /without a \(/],
      ['[a', /end where/],
      ['a**', /nothing before it/],
      ['{2}', /nothing before it/],
      ['a{', /no \{n,m\}/],
      ['a{3,2}', /no text fulfils/],
      ['a{5000}', /at most 4096/],
      ['[b-a]', /wrong way round/],
      ['[\\d-z]', /range between classes/],
      ['\\u{110000}', /no character/],
      ['\\q', /escape \\q/],
      ['\\', /end where/],
      ['a'.repeat(5000), /5000 characters/],
      [`${'('.repeat(200)}${')'.repeat(200)}`, /100 deep/],
      ['(a|b)*a(a|b){40}$', /make the format smaller/],
      ['((a{1000}){1000}){1000}', /make the format smaller/],
    ];
    for (const [source, words] of refused) {
      assert.throws(
        () => patternAutomaton(source, 'it', new PatternWork()),
        { code: 'REQUEST_INVALID', message: words },
        source,
      );
    }
  });
});

describe('the characters of JSON strings', () => {
  it('are accepted raw and escaped if, and only if, they are in the set', () => {
    const random = new SeededRandom(3);
    const edges = [
      0, 0x1f, 0x20, 0x22, 0x2f, 0x5c, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x103ff, 0x10400,
      0x10ffff,
    ];
    for (let count = 0; count < 200; count++) {
      const ends = Array.from({ length: 4 }, () =>
        Math.min(0x10ffff, Math.max(0, random.pick(edges) + random.int(5) - 2)),
      );
      const [a = 0, b = 0, c = 0, d = 0] = ends.sort((first, second) => first - second);
      const given = codePointsOf([
        [a, b],
        [c, d],
      ]);
      const set = given
        .flatMap(([low, high]) =>
          low < 0xe000 && high > 0xd7ff
            ? ([
                [low, 0xd7ff],
                [0xe000, high],
              ] as const)
            : ([[low, high]] as const),
        )
        .filter(([low, high]) => low <= high && !(low >= 0xd800 && high < 0xe000));
      const machine = jsonCharacterMachine(set);
      for (const near of [...edges, ...ends]) {
        const codePoint = near + random.int(3) - 1;
        if (codePoint < 0 || codePoint > 0x10ffff || (codePoint >= 0xd800 && codePoint < 0xe000)) continue;
        const character = String.fromCodePoint(codePoint);
        const units = [...Array(character.length).keys()].map((index) => character.charCodeAt(index));
        const escaped = units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('');
        const expected = contains(set, codePoint);
        assert.equal(machineAccepts(machine, escaped), expected, escaped);
        assert.equal(machineAccepts(machine, escaped.toUpperCase().replaceAll('\\U', '\\u')), expected, escaped);
        const canBeRaw = codePoint >= 0x20 && character !== '"' && character !== '\\';
        assert.equal(machineAccepts(machine, character), expected && canBeRaw, escaped);
      }
      assert.equal(machineAccepts(machine, '\\n'), contains(set, 10));
      assert.equal(machineAccepts(machine, '\\ud800'), false);
    }
  });
});

describe('numbers of a JSON schema', () => {
  const values = [
    -1e300,
    -1e16,
    -12.5,
    -1,
    -0.001,
    0,
    5e-324,
    1e-20,
    0.1,
    0.30000000000000004,
    1,
    7,
    99.99,
    120,
    2 ** 53,
    1e21,
    1.7e308,
  ];

  function drawRule(random: SeededRandom): NumberRule {
    const [first, second] = [random.pick([...values, -Infinity]), random.pick([...values, Infinity])];
    const rule = {
      isInteger: random.chance(0.4),
      least: Math.min(first, second),
      isLeastExcluded: random.chance(0.4),
      most: Math.max(first, second),
      isMostExcluded: random.chance(0.4),
      multipleOf: null,
    };
    if (random.chance(0.6)) return rule;
    const multipleOf = decimalOf(random.pick([1, 3, 10, 0.5, 0.125, 2.5, 0.01]));
    return commonNumbers(rule, { ...ANY_NUMBER, multipleOf }, 'it');
  }

  it('match the rule, and end, when the automaton generates them', () => {
    const random = new SeededRandom(4);
    for (let count = 0; count < 200; count++) {
      const rule = drawRule(random);
      if (!hasNumber(rule)) continue;
      const machine = numberMachine(rule);
      for (let texts = 0; texts < 30; texts++) {
        let [text, at] = ['', 0];
        for (let state = machine.states[at]; state !== undefined; state = machine.states[at]) {
          if (state.edges.length === 0 || (state.isFinal && random.chance(0.2))) break;
          const edge = random.pick(state.edges);
          text += String.fromCharCode(edge.low + random.int(edge.high - edge.low + 1));
          at = edge.target;
          assert.ok(text.length < 1000);
        }
        assert.ok(machine.states[at]?.isFinal, `${text} does not end`);
        const value: unknown = JSON.parse(text);
        assert.ok(typeof value === 'number' && Number.isFinite(value) && !Object.is(value, -0), text);
        assert.ok(isInNumberRule(value, rule), `${text} for ${inspect(rule)}`);
      }
    }
  });

  it('can be generated by the automaton when they match the rule and are short', () => {
    const random = new SeededRandom(5);
    for (let count = 0; count < 200; count++) {
      const rule = drawRule(random);
      const machine = numberMachine(rule);
      for (let texts = 0; texts < 30; texts++) {
        const scale = random.pick([1, 10, 1000, 1e6]);
        const value = random.pick([Number(((random.fraction() - 0.5) * scale).toFixed(random.int(6))), ...values]);
        if (Math.abs(value) >= 1e15 || (value !== 0 && Math.abs(value) < 1e-6) || Object.is(value, -0)) continue;
        const isWritten = machineAccepts(machine, String(value));
        assert.ok(hasNumber(rule) || !isWritten);
        assert.equal(isWritten, isInNumberRule(value, rule), `${value} for ${inspect(rule)}`);
      }
    }
  });
});
