import assert from 'node:assert/strict';
import fc from 'fast-check';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  conversationPath,
  formatConversation,
  parseConversation,
  readConversation,
  writeConversation,
} from '../../cli/chat/conversation-file.js';
import {
  allMessages,
  answered,
  asked,
  cleared,
  EMPTY_TERMINAL_CONVERSATION,
  reopened,
  undone,
  type TerminalConversation,
} from '../../cli/chat/conversation.js';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { HISTORY_LINES_LIMIT, LineHistory, mergeHistory } from '../../cli/chat/line-history.js';

function talk(system: string | null, ...texts: string[]): TerminalConversation {
  let conversation: TerminalConversation = { ...EMPTY_TERMINAL_CONVERSATION, system };
  for (const [index, text] of texts.entries()) {
    conversation = index % 2 === 0 ? asked(conversation, text) : answered(conversation, text);
  }
  return conversation;
}

describe('a chat conversation', () => {
  it('is sent whole, with the question last', () => {
    assert.deepEqual(allMessages(talk('Be brief.', 'a', 'b', 'c')), [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b' },
      { role: 'user', content: 'c' },
    ]);
  });

  it('keeps a question without an answer until another is asked', () => {
    assert.equal(answered(talk(null, 'a'), '').unanswered, 'a');
    assert.deepEqual(asked(talk(null, 'a', 'b', 'c'), 'd'), talk(null, 'a', 'b', 'd'));
  });

  it('sends the last question again on demand', () => {
    assert.deepEqual(reopened(talk('s', 'a', 'b', 'c', 'd')), talk('s', 'a', 'b', 'c'));
    assert.deepEqual(reopened(talk('s', 'a', 'b', 'c')), talk('s', 'a', 'b', 'c'));
    assert.equal(reopened(talk('s')), null);
  });

  it('drops its last complete turn, and keeps an unanswered question', () => {
    assert.deepEqual(undone(talk('s', 'a', 'b', 'c', 'd')), talk('s', 'a', 'b'));
    assert.deepEqual(undone(talk(null, 'a', 'b', 'c')), talk(null, 'c'));
    assert.equal(undone(talk('s', 'a')), null);
  });

  it('begins anew with the same system text', () => {
    assert.deepEqual(cleared(talk('s', 'a', 'b', 'c')), talk('s'));
  });
});

describe('a conversation file', () => {
  let directory = '';

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-chat-'));
  });

  afterEach(() => rm(directory, { recursive: true }));

  it('gives the conversation back', () => {
    const text = fc.string({ unit: 'binary', minLength: 1 });
    fc.assert(
      fc.property(fc.option(text), fc.array(text), (system, texts) => {
        const conversation = talk(system, ...texts);
        const written = formatConversation(conversation);
        assert.deepEqual(parseConversation(written, 'f'), conversation);
        assert.equal(written.split('\n').length - 1, texts.length + (system === null ? 0 : 1));
      }),
    );
  });

  it('may be a JSON array, or a request’s messages', () => {
    const messages = allMessages(talk('s', 'a', 'b'));
    assert.deepEqual(parseConversation(JSON.stringify(messages, null, 2), 'f'), talk('s', 'a', 'b'));
    assert.deepEqual(parseConversation(JSON.stringify({ model: 'm', messages }), 'f'), talk('s', 'a', 'b'));
  });

  it('may hold later system messages, and loses none of them', () => {
    const message = (role: string, content: string): ChatMessage => ({ role, content });
    const [first, question, answer, later] = [
      message('system', 's'),
      message('user', 'a'),
      message('assistant', 'b'),
      message('system', 't'),
    ];
    const read = (...messages: (ChatMessage | undefined)[]): TerminalConversation =>
      parseConversation(JSON.stringify(messages), 'f');
    const whole = [first, question, answer, later, message('user', 'c')];
    assert.deepEqual(allMessages(read(...whole)), whole);
    assert.deepEqual(allMessages(asked(read(first, question, answer, later), 'c')), whole);
    const between = read(first, question, later, answer);
    assert.deepEqual(allMessages(reopened(between) ?? assert.fail()), [first, later, question]);
    assert.deepEqual(read(first, question, later), reopened(between));
  });

  it('is refused with a message that says what is wrong', () => {
    const wrong: [string, RegExp][] = [
      ['hello', /f holds no conversation: line 1 is not JSON/],
      ['{"role":"user","content":"a"}\n{"role":"user"', /line 2 is not JSON/],
      ['{"role":"user","content":"a"}\n{"role":"robot","content":"b"}', /message 2/],
      ['{"role":"user","content":""}', /message 1/],
      ['[{"role":"user","content":"a","tool_calls":[]}]', /tool_calls/],
    ];
    for (const [text, message] of wrong) assert.throws(() => parseConversation(text, 'f'), { code: 'USAGE', message });
  });

  it('is written whole, readable by its user alone, and never over another file', async () => {
    const path = join(directory, 'talk.jsonl');
    await writeConversation(path, talk('s', 'a', 'b'), false);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    await assert.rejects(writeConversation(path, talk('s'), false), { code: 'USAGE', message: /is there already/ });
    assert.deepEqual(await readConversation(path), talk('s', 'a', 'b'));
    await writeConversation(path, talk('t', 'c', 'd'), true);
    assert.deepEqual(await readConversation(path), talk('t', 'c', 'd'));
    assert.deepEqual(await readdir(directory), ['talk.jsonl']);
    await assert.rejects(writeConversation(join(directory, 'none', 'f'), talk('s'), false), { code: 'STORAGE_FAILED' });
    await assert.rejects(readConversation(join(directory, 'none')), { code: 'USAGE', message: /no such file/ });
  });

  it('expands its name as a shell does', () => {
    assert.equal(conversationPath('~/a b.jsonl', '/home/x'), '/home/x/a b.jsonl');
    assert.equal(conversationPath('/a/../b'), '/b');
    assert.equal(conversationPath('c'), join(process.cwd(), 'c'));
  });
});

describe('the history of typed lines', () => {
  let directory = '';

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-history-'));
  });

  afterEach(() => rm(directory, { recursive: true }));

  it('holds a bounded number of the latest lines, without repetitions or very long lines', () => {
    const many = Array.from({ length: HISTORY_LINES_LIMIT + 5 }, (_, index) => `line ${index}`);
    const merged = mergeHistory(many, ['new', 'new', ' ', 'x'.repeat(5000)]);
    assert.equal(merged.length, HISTORY_LINES_LIMIT);
    assert.deepEqual(merged.slice(-2), [many.at(-1), 'new']);
  });

  it('is in a file that only the user can read, and merges two conversations', async () => {
    const path = join(directory, 'odmoe', 'chat-history');
    const problems: string[] = [];
    const [one, two] = [0, 1].map(() => new LineHistory(path, (problem) => problems.push(problem)));
    assert.ok(one !== undefined && two !== undefined);
    assert.deepEqual(await one.read(), []);
    await one.add(['a', 'b']);
    await two.add(['c']);
    await one.add(['d']);
    assert.deepEqual(await two.read(), ['a', 'b', 'c', 'd']);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal(await readFile(path, 'utf8'), 'a\nb\nc\nd\n');
    assert.deepEqual(problems, []);
  });

  it('is not saved where the file cannot be written, and a message says so', async () => {
    await writeFile(join(directory, 'odmoe'), '');
    const problems: string[] = [];
    const history = new LineHistory(join(directory, 'odmoe', 'chat-history'), (problem) => problems.push(problem));
    assert.deepEqual(await history.read(), []);
    await history.add(['a']);
    await history.add(['b']);
    assert.equal(problems.length, 1, 'once');
    assert.match(problems[0] ?? '', /cannot be kept/);
  });
});
