import assert from 'node:assert/strict';
import fc from 'fast-check';
import { formatConversation, parseConversation } from '../../cli/chat/conversation-file.js';
import { allMessages, answered, asked, EMPTY_TERMINAL_CONVERSATION } from '../../cli/chat/conversation.js';
import { chatSettings, DEFAULT_SETTINGS, storedSettings } from '../../dashboard/chat-view/chat-settings.js';
import {
  ask,
  askAgain,
  changeAnswer,
  chooseTurn,
  EMPTY_PAGE_CONVERSATION,
  mergeTurns,
  siblingsOf,
  type Answer,
  type PageConversation,
} from '../../dashboard/chat-view/conversation.js';
import { canGoOn, goOn, shownAnswer, withCutAnswers, withRepeated } from '../../dashboard/chat-view/cut-answers.js';
import {
  foundPlace,
  headOf,
  keepingProblemWords,
  keptConversation,
  keptTurn,
  listedHeads,
  mergedHead,
  titleOf,
  turnBytes,
  type KeptTurn,
} from '../../dashboard/chat-view/kept-form.js';
import { readFile, savedFile, savedFileName, sizeProblem } from '../../dashboard/chat-view/saved-file.js';

const SETTINGS = { ...chatSettings(DEFAULT_SETTINGS), seed: 5 };
const NOBODY: ReadonlySet<number> = new Set();

function texts({ turns }: PageConversation): string[] {
  return turns.map(({ text }) => text);
}

function answerOf({ turns }: PageConversation): Answer {
  const last = turns.at(-1);
  assert.ok(last?.kind === 'answer');
  return last;
}

/** Gives the last shown answer a text. */
function answer(conversation: PageConversation, text: string, state: Answer['state'] = 'done'): PageConversation {
  return changeAnswer(conversation, answerOf(conversation).id, (each) => ({ ...each, text, state }));
}

function talk(...said: string[]): PageConversation {
  let conversation: PageConversation = { ...EMPTY_PAGE_CONVERSATION, id: 'c' };
  for (let index = 0; index < said.length; index += 2) {
    conversation = answer(ask(conversation, said[index] ?? '', SETTINGS), said[index + 1] ?? '');
  }
  return conversation;
}

describe('the branches of a conversation of the page', () => {
  it('keep the question before an edit, with all that followed', () => {
    const before = talk('a', 'A', 'b', 'B');
    const edited = answer(askAgain(before, before.turns[0]?.id ?? 0, 'x', SETTINGS), 'X');
    assert.deepEqual(texts(edited), ['x', 'X']);
    const [first] = edited.turns;
    assert.ok(first !== undefined);
    const siblings = siblingsOf(edited, first);
    assert.deepEqual(
      siblings.map(({ text }) => text),
      ['a', 'x'],
    );
    assert.deepEqual(texts(chooseTurn(edited, siblings[0] ?? first)), ['a', 'A', 'b', 'B']);
  });

  it('keep the answer before the same question is asked again', () => {
    const before = talk('a', 'A', 'b', 'B');
    const again = answer(askAgain(before, before.turns[0]?.id ?? 0, 'a', SETTINGS), 'A2');
    assert.deepEqual(texts(again), ['a', 'A2']);
    assert.equal(again.all.filter(({ kind }) => kind === 'question').length, 2);
    const [old] = siblingsOf(again, answerOf(again));
    assert.ok(old !== undefined);
    assert.deepEqual(texts(chooseTurn(again, old)), ['a', 'A', 'b', 'B']);
  });

  it('show the latest version where none was chosen, and end in spite of a circle', () => {
    const before = talk('a', 'A');
    const again = answer(askAgain(before, before.turns[0]?.id ?? 0, 'a', SETTINGS), 'A2');
    assert.deepEqual(texts(mergeTurns({ ...again, chosen: {}, all: [] }, again.all)), ['a', 'A2']);
    const circle = again.all.map((turn) => ({ ...turn, parentId: turn.kind === 'question' ? null : turn.id }));
    assert.deepEqual(texts(mergeTurns({ ...again, all: [] }, circle)), ['a']);
  });

  it('of two tabs become one tree without a loss, in whichever order they are merged', () => {
    const step = fc.record({ tab: fc.boolean(), text: fc.string({ minLength: 1, maxLength: 3 }), at: fc.nat(9) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const begin = talk('a', 'A');
        let [left, right] = [1000, 2000].map((nextId) => ({ ...begin, nextId }));
        assert.ok(left !== undefined && right !== undefined);
        for (const { tab, text, at } of steps) {
          const mine: PageConversation = tab ? left : right;
          const questions = mine.turns.filter(({ kind }) => kind === 'question');
          const place = questions[at];
          const next = place === undefined ? ask(mine, text, SETTINGS) : askAgain(mine, place.id, text, SETTINGS);
          if (tab) left = answer(next, `${text}!`);
          else right = answer(next, `${text}!`);
        }
        const [one, two] = [mergeTurns(left, right.all), mergeTurns(right, left.all)];
        const sorted = ({ all }: PageConversation): unknown => [...all].sort((a, b) => a.id - b.id);
        assert.deepEqual(sorted(one), sorted(two));
        assert.equal(one.all.length, new Set([...left.all, ...right.all].map(({ id }) => id)).size);
        // What the other tab has asked behind it follows.
        assert.deepEqual(texts(one).slice(0, left.turns.length), texts(left));
      }),
    );
  });

  it('take the newer copy of an answer, and never the older one', () => {
    const old = answer(ask(EMPTY_PAGE_CONVERSATION, 'a', SETTINGS), 'A', 'streaming');
    const newer = answer(old, 'A and more');
    assert.equal(answerOf(mergeTurns(old, newer.all)).text, 'A and more');
    assert.equal(mergeTurns(newer, old.all), newer);
  });
});

describe('an answer that a reload has cut', () => {
  const running = answer(ask(EMPTY_PAGE_CONVERSATION, 'a', SETTINGS), 'One, two', 'streaming');
  const cut = withCutAnswers(running, NOBODY);
  const { id } = answerOf(cut);
  const more = (conversation: PageConversation, text: string, state: Answer['state'] = 'streaming'): PageConversation =>
    withRepeated(answer(conversation, text, state), id);

  it('is one that is under way in no tab', () => {
    assert.equal(answerOf(cut).state, 'cut');
    assert.equal(withCutAnswers(running, new Set([id])), running);
    assert.equal(answerOf(mergeTurns(cut, answer(running, 'One, two, three', 'streaming').all)).state, 'streaming');
  });

  it('stays shown while the same is asked again, and then goes on', () => {
    const again = goOn(cut, id);
    assert.deepEqual([answerOf(again).state, answerOf(again).text], ['waiting', '']);
    assert.equal(shownAnswer(answerOf(again)).text, 'One, two');
    const half = more(again, 'One');
    assert.equal(shownAnswer(answerOf(half)).text, 'One, two');
    assert.match(shownAnswer(answerOf(half)).progress, /3 of 8 characters/);
    const whole = more(half, 'One, two, three', 'done');
    assert.deepEqual([whole.all.length, answerOf(whole).text, answerOf(whole).came], [2, 'One, two, three', null]);
    assert.deepEqual(answerOf(again).settings, answerOf(cut).settings);
  });

  it('may also be one that failed or was stopped, if some of it had come', () => {
    const state = (text: string, ended: Answer['state']): boolean => canGoOn(answerOf(answer(running, text, ended)));
    assert.deepEqual([state('One', 'failed'), state('One', 'stopped'), state('One', 'done')], [true, true, false]);
    assert.deepEqual([state('', 'failed'), state('', 'stopped'), state('One', 'streaming')], [false, false, false]);
    assert.equal(goOn(running, id), running);
  });

  it('becomes a version of its own where the new answer differs, also by its end', () => {
    for (const [text, state] of [
      ['Uno', 'streaming'],
      ['One', 'done'],
    ] as const) {
      const other = more(goOn(cut, id), text, state);
      assert.deepEqual(
        siblingsOf(other, answerOf(other))
          .map((turn) => turn.text)
          .sort(),
        [text, 'One, two'].sort(),
      );
      assert.deepEqual([answerOf(other).text, answerOf(other).came], [text, null]);
      assert.equal(new Set(other.all.map((turn) => turn.id)).size, 3);
    }
  });

  it('stays as it was where the new answer fails, is stopped, or is cut again', () => {
    for (const state of ['failed', 'stopped'] as const) {
      const ended = answerOf(more(goOn(cut, id), 'One', state));
      assert.deepEqual([ended.state, ended.text, ended.came], ['cut', 'One, two', null]);
    }
    const again = answerOf(withCutAnswers(more(goOn(cut, id), 'One'), NOBODY));
    assert.deepEqual([again.state, again.text, again.came], ['cut', 'One, two', null]);
  });
});

describe('what the browser keeps of a conversation', () => {
  const said = talk('Where is\nthe fox?', 'Here.', 'And now?', 'There.');
  const tokens = [{ text: 'Here.', logprob: -1, alternatives: [{ text: 'x', logprob: -2 }] }];
  const withTokens = changeAnswer(said, 2, (each) => ({ ...each, tokens }));

  function kept(conversation: PageConversation): PageConversation {
    const records = conversation.all.map((turn) => keptTurn('c', turn));
    const stored = structuredClone(records.map((each) => each.kept)).reverse();
    const storedTokens = structuredClone(records.flatMap((each) => (each.tokens === null ? [] : [each.tokens])));
    return keptConversation(headOf(conversation, 1, 0), stored, storedTokens, 77);
  }

  it('gives all of it back, in whichever order the records come', () => {
    const back = kept(withTokens);
    assert.deepEqual(back.turns, withTokens.turns);
    assert.deepEqual([back.id, back.chosen, back.nextId], ['c', withTokens.chosen, 77]);
  });

  it('leaves damaged records out, and gives what an earlier page did not keep its default', () => {
    const [question, reply] = withTokens.all.map((turn) => keptTurn('c', turn).kept);
    assert.ok(question !== undefined && reply?.turn.kind === 'answer');
    const earlier: Partial<typeof reply.turn> = { ...reply.turn };
    delete earlier.came;
    delete earlier.isImported;
    const records = [
      question,
      { ...reply, turn: earlier },
      { id: 9, turn: {} },
      { id: 10, turn: { text: 'x', kind: 'y' } },
    ];
    const back = keptConversation(headOf(said, 1, 0), records as KeptTurn[], [], 77);
    assert.deepEqual(texts(back), ['Where is\nthe fox?', 'Here.']);
    const { came, isImported, tokens: none } = answerOf(back);
    assert.deepEqual([came, isImported, none], [null, false, []]);
  });

  it('has its first question or its own title as the title; the later title counts', () => {
    const head = headOf(said, 1, 0);
    assert.equal(titleOf(head), 'Where is the fox?');
    const [older, newer] = [
      { ...head, title: 'Fox', titledMs: 5 },
      { ...head, title: 'Foxes', titledMs: 6 },
    ];
    assert.equal(titleOf(mergedHead(older, newer)), 'Foxes');
    assert.equal(titleOf(mergedHead(newer, older)), 'Foxes');
    assert.equal(titleOf(headOf(talk('x'.repeat(500), ''), 1, 0)).length, 121);
  });

  it('is listed with what is in memory alone, the latest first, and without what was deleted', () => {
    const head = (id: string, changedMs: number, deletedMs: number | null = null) => ({
      ...headOf({ ...said, id }, changedMs, 9),
      deletedMs,
    });
    const heads = listedHeads([head('a', 1), head('b', 3), head('d', 9, 9)], [said, EMPTY_PAGE_CONVERSATION], 2);
    assert.deepEqual(
      heads.map(({ id }) => id),
      ['b', 'c', 'a'],
    );
    assert.equal(
      heads[1]?.bytes,
      said.all.reduce((sum, turn) => sum + turnBytes(turn), 0),
    );
  });

  it('counts the bytes of texts and tokens', () => {
    const [, plain] = said.all;
    const [, full] = withTokens.all;
    assert.ok(plain !== undefined && full !== undefined);
    assert.ok(turnBytes(full) > turnBytes(plain) + 2 * 'Here.x'.length);
    assert.ok(turnBytes(full) > JSON.stringify(full).length / 2);
  });

  it('is found by its words, with some text around', () => {
    assert.equal(foundPlace('The quick brown fox', 'QUICK'), 'The quick brown fox');
    assert.equal(foundPlace('The fox', 'owl'), null);
    const place = foundPlace(`${'a '.repeat(50)}fox${' b'.repeat(100)}`, 'fox') ?? '';
    assert.match(place, /^…(a )+fox( b)+…$/);
    assert.ok(place.length < 120);
  });

  it('ends with words that say what to do where there is no room', () => {
    assert.match(keepingProblemWords('full'), /at most 256 MB.*tab alone.*export it, or delete other/);
    const quota = Object.assign(new Error('x'), { name: 'QuotaExceededError' });
    assert.match(keepingProblemWords(quota), /no more room.*make room on the disk/);
    assert.match(keepingProblemWords(new Error('denied')), /\(denied\).*export/);
  });

  it('takes settings back that fit the fields, and defaults for others', () => {
    assert.deepEqual(storedSettings({ ...DEFAULT_SETTINGS, system: 'Be brief.', seed: 5, x: 'y' }), {
      ...DEFAULT_SETTINGS,
      system: 'Be brief.',
    });
    assert.deepEqual(storedSettings(null), DEFAULT_SETTINGS);
  });
});

describe('the file of a conversation of the page', () => {
  const EMPTY = { ...EMPTY_PAGE_CONVERSATION, id: 'new' };

  it('is read by odmoe chat, and the file of odmoe chat by the page', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1 });
    fc.assert(
      fc.property(text, fc.array(fc.tuple(text, text), { minLength: 1, maxLength: 4 }), (system, pairs) => {
        let conversation: PageConversation = EMPTY;
        let terminal = { ...EMPTY_TERMINAL_CONVERSATION, system };
        for (const [question, reply] of pairs) {
          conversation = answer(ask(conversation, question, { ...SETTINGS, system }), reply);
          terminal = { ...answered(asked(terminal, question), reply), system };
        }
        const file = savedFile(conversation);
        assert.deepEqual(allMessages(parseConversation(file, 'f')), allMessages(terminal));
        assert.equal(formatConversation(terminal), file);
        const read = readFile('f', formatConversation(terminal), EMPTY, SETTINGS);
        assert.ok(typeof read !== 'string');
        assert.deepEqual([texts(read.conversation), read.system, read.leftOut], [texts(conversation), system, 0]);
        assert.equal(savedFile(read.conversation), file);
      }),
    );
  });

  it('has the shown branch alone, without answers that have no text', () => {
    const edited = askAgain(talk('a', 'A'), 1, 'x', SETTINGS);
    assert.equal(savedFile(edited), '{"role":"user","content":"x"}\n');
  });

  it('may end with a question; later system messages are left out and counted', () => {
    const messages = ['system s', 'user a', 'system t', 'assistant A', 'user b'].map((line) => {
      const [role, content] = line.split(' ');
      return { role, content };
    });
    const read = readFile('f', JSON.stringify(messages), EMPTY, SETTINGS);
    assert.ok(typeof read !== 'string');
    assert.deepEqual([texts(read.conversation), read.system, read.leftOut], [['a', 'A', 'b'], 's', 1]);
  });

  it('is refused in words', () => {
    const wrong: [string, RegExp][] = [
      ['', /f holds no question and no answer/],
      ['{"role":"system","content":"s"}', /no question and no answer/],
      ['{"role":"user","content":"a"}\n{"role":"us', /f holds no conversation: line 2 is not JSON; give a file/],
      ['[{"role":"user","content":7}]', /message 1: "content"/],
      ['\u0000\u0001', /line 1 is not JSON/],
    ];
    for (const [file, words] of wrong) {
      const read = readFile('f', file, EMPTY, SETTINGS);
      assert.ok(typeof read === 'string');
      assert.match(read, words);
    }
    assert.match(sizeProblem('f', 17_000_000), /f is larger than 16\.8 MB/);
    assert.equal(sizeProblem('f', 1000), '');
  });

  it('has a name of letters from any script', () => {
    assert.equal(savedFileName('What is /etc: "x"?'), 'What-is-etc-x.jsonl');
    assert.equal(savedFileName('狐の話'), '狐の話.jsonl');
    assert.equal(savedFileName('?!'), 'chat.jsonl');
    assert.equal(savedFileName('𝒜'.repeat(90)), `${'𝒜'.repeat(60)}.jsonl`);
  });
});
