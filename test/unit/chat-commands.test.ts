import assert from 'node:assert/strict';
import { CHAT_HELP, parseChatLine } from '../../cli/chat/chat-line.js';
import { changeSetting, settingLines, type TerminalChatSettings } from '../../cli/chat/chat-settings.js';
import { MessageLines } from '../../cli/chat/message-lines.js';

const GREEDY: TerminalChatSettings = {
  sampling: { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
  maxTokens: null,
};

const usage = (message: RegExp) => ({ code: 'USAGE', message });

describe('a line typed in a conversation', () => {
  it('is a message unless it begins with a slash', () => {
    assert.deepEqual(parseChatLine('  hello there '), { kind: 'message', text: 'hello there' });
    assert.deepEqual(parseChatLine(' /etc/hosts?'), { kind: 'message', text: '/etc/hosts?' });
    assert.deepEqual(parseChatLine(''), { kind: 'message', text: '' });
  });

  it('is a command with arguments when it begins with a slash', () => {
    assert.deepEqual(parseChatLine('/set top_p  0.9'), { kind: 'set', key: 'top_p', value: '0.9' });
    assert.deepEqual(parseChatLine('/set'), { kind: 'set', key: null, value: '' });
    assert.deepEqual(parseChatLine('/system Be brief.\nBe kind.'), { kind: 'system', text: 'Be brief.\nBe kind.' });
    assert.deepEqual(parseChatLine('/system'), { kind: 'system', text: null });
    assert.deepEqual(parseChatLine('/save a file.jsonl '), { kind: 'save', path: 'a file.jsonl' });
    assert.deepEqual(parseChatLine('/save'), { kind: 'save', path: null });
    assert.deepEqual(parseChatLine('/load x'), { kind: 'load', path: 'x' });
    for (const kind of ['clear', 'undo', 'retry', 'help', 'exit'] as const) {
      assert.deepEqual(parseChatLine(`/${kind}`), { kind });
      assert.ok(CHAT_HELP.includes(`/${kind} `), `/help does not tell of /${kind}`);
    }
  });

  it('is refused when the command is unknown, and the message suggests the nearest command', () => {
    assert.throws(() => parseChatLine('/sytem Be brief.'), usage(/no command \/sytem; did you mean \/system\?/));
    assert.throws(() => parseChatLine('/etc/passwd is what?'), usage(/put a space before it/));
    assert.throws(() => parseChatLine('/'), usage(/no command/));
    assert.throws(() => parseChatLine('/set seed'), usage(/VALUE/));
    assert.throws(() => parseChatLine('/load'), usage(/FILE/));
    assert.throws(() => parseChatLine('/clear all'), usage(/nothing behind it/));
  });
});

describe('the settings of a conversation', () => {
  it('become properties of the request’s sampling', () => {
    const given: [string, string][] = [
      ...([
        ['temperature', '0.7'],
        ['top_p', '0.9'],
        ['top_k', '40'],
        ['min_p', '0.05'],
        ['seed', '0'],
      ] as const),
      ...([
        ['max_tokens', '100'],
        ['repetition_penalty', '1.1'],
      ] as const),
      ...([
        ['presence_penalty', '-1.5'],
        ['frequency_penalty', '0.5'],
      ] as const),
    ].map(([key, value]) => [key, value]);
    const changed = given.reduce<TerminalChatSettings>(
      (settings, [key, value]) => changeSetting(settings, key, value),
      GREEDY,
    );
    assert.deepEqual(changed, {
      sampling: {
        temperature: 0.7,
        topP: 0.9,
        topK: 40,
        minP: 0.05,
        repetitionPenalty: 1.1,
        seed: 0,
        presencePenalty: -1.5,
        frequencyPenalty: 0.5,
      },
      maxTokens: 100,
    });
    assert.equal(settingLines(changed).filter((line) => line.includes('off')).length, 0);
    const back = given.reduce<TerminalChatSettings>((settings, [key]) => changeSetting(settings, key, 'off'), changed);
    assert.deepEqual(back, { ...GREEDY, sampling: { ...GREEDY.sampling, presencePenalty: 0, frequencyPenalty: 0 } });
    assert.equal(settingLines(back).filter((line) => line.includes('off')).length, given.length);
  });

  it('list their allowed values, and all settings', () => {
    assert.throws(() => changeSetting(GREEDY, 'temperature', 'warm'), usage(/number from 0 to 1000, or off; "warm"/));
    assert.throws(() => changeSetting(GREEDY, 'temperature', '-1'), usage(/temperature/));
    assert.throws(() => changeSetting(GREEDY, 'max_tokens', '0'), usage(/from 1 to/));
    assert.throws(() => changeSetting(GREEDY, 'seed', '1.5'), usage(/whole number/));
    assert.throws(() => changeSetting(GREEDY, 'seed', '0x10'), usage(/whole number/));
    assert.throws(() => changeSetting(GREEDY, 'top_p', ' '), usage(/top_p/));
    assert.throws(() => changeSetting(GREEDY, 'temprature', '1'), usage(/did you mean temperature\?/));
    assert.throws(() => changeSetting(GREEDY, 'toString', '1'), usage(/no setting/));
  });
});

describe('typed lines of a message', () => {
  function collect(...lines: string[]): unknown[] {
    const collecting = new MessageLines();
    return lines.map((line) => collecting.add(line));
  }

  it('are joined by a backslash', () => {
    assert.deepEqual(collect('one\\', 'two\\', 'three', 'next'), [
      null,
      null,
      { text: 'one\ntwo\nthree', isVerbatim: false },
      { text: 'next', isVerbatim: false },
    ]);
  });

  it('are taken as they are between triple quotes', () => {
    assert.deepEqual(collect('"""', '/clear \\', '', '  two', '"""').at(-1), {
      text: '/clear \\\n\n  two',
      isVerbatim: true,
    });
    assert.deepEqual(collect('"""/one', 'two"""').at(-1), { text: '/one\ntwo', isVerbatim: true });
    assert.deepEqual(collect('"""/one line"""').at(-1), { text: '/one line', isVerbatim: true });
  });

  it('become one message when pasted, or a part of the message being written', () => {
    const collecting = new MessageLines();
    assert.deepEqual(collecting.addPaste('/a\nb\\\n'), { text: '/a\nb\\', isVerbatim: true });
    assert.equal(collecting.isOpen, false);
    collecting.add('"""');
    assert.equal(collecting.addPaste('c\nd'), null);
    assert.deepEqual(collecting.add('"""'), { text: 'c\nd', isVerbatim: true });
  });

  it('end when no more lines come, and can be dropped on demand', () => {
    const collecting = new MessageLines();
    assert.equal(collecting.end(), null);
    collecting.add('"""one');
    assert.deepEqual(collecting.end(), { text: 'one', isVerbatim: true });
    collecting.add('two\\');
    collecting.reset();
    assert.equal(collecting.isOpen, false);
    assert.deepEqual(collecting.add('three'), { text: 'three', isVerbatim: false });
  });

  it('have a bound, and a line beyond it begins a new message', () => {
    const collecting = new MessageLines();
    collecting.add('"""');
    const line = 'x'.repeat(1024 * 1024);
    assert.throws(
      () => {
        for (let count = 0; count < 9; count += 1) collecting.add(line);
      },
      usage(/at most 8388608 characters/),
    );
    assert.deepEqual(collecting.add('short'), { text: 'short', isVerbatim: false });
  });
});
