import assert from 'node:assert/strict';
import fc from 'fast-check';
import { editorAction, keyAction, type KeyPlace, type PressedKey } from '../../dashboard/chat-view/chat-keys.js';
import {
  chatSettings,
  DEFAULT_SETTINGS,
  settingOfField,
  settingProblem,
  settingRefusal,
  storedSettings,
  type TypedSettings,
} from '../../dashboard/chat-view/chat-settings.js';
import { droppedBefore } from '../../dashboard/chat-view/chat-request.js';
import { contextUse, guessedTokens } from '../../dashboard/chat-view/context-use.js';
import {
  ask,
  changeAnswer,
  EMPTY_PAGE_CONVERSATION,
  withNotSent,
  type PageConversation,
} from '../../dashboard/chat-view/conversation.js';
import {
  answerRoom,
  droppableCounts,
  droppedTurns,
  fewestDropped,
  tooLongQuestion,
} from '../../dashboard/chat-view/dropped-turns.js';
import { indentedJson } from '../../dashboard/chat-view/indented-json.js';
import { countBody } from '../../dashboard/chat-view/main-counts.js';
import { PROMPT_TOO_LONG } from '../../dashboard/chat-view/main-refusal.js';
import { fencedFile, readTextFile, withBlock } from '../../dashboard/chat-view/text-files.js';

const SETTINGS = { ...chatSettings(DEFAULT_SETTINGS), seed: 5 };

/** A conversation of these questions, each answered with 10 tokens; the prompt has 100 more from question to question. */
function conversationOf(questions: readonly string[]): PageConversation {
  return questions.reduce((before, text, index) => {
    const asked = ask(before, text, SETTINGS);
    const usage = { promptTokens: 100 * (index + 1), cachedTokens: 0, answerTokens: 10 };
    return changeAnswer(asked, asked.nextId - 1, (answer) => ({ ...answer, state: 'done', text: 'ok', usage }));
  }, EMPTY_PAGE_CONVERSATION);
}

describe('the keys of the chat', () => {
  const place: KeyPlace = { field: 'composer', isEmpty: true, isRunning: false, hasOverlay: false };
  const none = { code: '', ctrlKey: false, metaKey: false, shiftKey: false, altKey: false, isComposing: false };
  const press = (key: string, more: Partial<PressedKey> = {}, where: Partial<KeyPlace> = {}): string | null => {
    return keyAction({ ...none, key, ...more }, { ...place, ...where });
  };

  it('send, edit, stop and begin anew', () => {
    assert.equal(press('Enter'), 'send');
    assert.equal(press('ArrowUp'), 'edit');
    assert.equal(press('Escape', {}, { isRunning: true }), 'stop');
    assert.equal(press('O', { ctrlKey: true, shiftKey: true }), 'new');
    assert.equal(press('Щ', { code: 'KeyO', metaKey: true, shiftKey: true }), 'new');
    assert.equal(press('?', { shiftKey: true }, { field: 'none' }), 'keys');
  });

  it('send an edited question by Enter in its text alone, and leave its editor by Escape', () => {
    const pressed = (key: string, more: Partial<PressedKey> = {}): string | null =>
      editorAction({ ...none, key, ...more }, true);
    assert.deepEqual([pressed('Enter'), pressed('Escape'), pressed('a')], ['send', 'leave', null]);
    assert.equal(editorAction({ ...none, key: 'Enter' }, false), null);
    for (const more of [{ shiftKey: true }, { isComposing: true }, { ctrlKey: true }]) {
      assert.equal(pressed('Enter', more), null);
    }
    assert.equal(pressed('Escape', { isComposing: true }), null);
  });

  it('leave typing, compositions, other fields and overlays alone', () => {
    assert.equal(press('Enter', { shiftKey: true }), null);
    assert.equal(press('ArrowUp', {}, { isEmpty: false }), null);
    assert.equal(press('?', { shiftKey: true }), null);
    assert.equal(press('Enter', {}, { field: 'other' }), null);
    assert.equal(press('O', { ctrlKey: true, shiftKey: true, altKey: true }), null);
    assert.equal(press('Escape'), null);
    assert.equal(press('Escape', {}, { isRunning: true, hasOverlay: true }), null);
    for (const key of ['Enter', 'ArrowUp', 'Escape']) {
      assert.equal(press(key, { isComposing: true }, { isRunning: true }), null);
    }
  });
});

describe('the use of the context', () => {
  it("is main's own count, as long as nothing was added", () => {
    const { turns } = conversationOf(['One?', 'Two?']);
    assert.deepEqual(contextUse(turns, 0, 0), { tokens: 210, isAbout: false });
    assert.deepEqual(contextUse(turns, 0, 7), { tokens: 217, isAbout: true });
    assert.deepEqual(contextUse([], 0, 0), { tokens: 0, isAbout: false });
  });

  it('is guessed where main has not counted: a stopped answer, turns that are dropped or sent again', () => {
    const stopped = ask(conversationOf(['One?']), 'x'.repeat(400), SETTINGS);
    assert.deepEqual(contextUse(stopped.turns, 0, 0), { tokens: 210, isAbout: true });
    const { turns } = conversationOf(['y'.repeat(40), 'Two?']);
    const dropped = guessedTokens('y'.repeat(40)) + guessedTokens('ok');
    assert.deepEqual(contextUse(turns, 2, 0), { tokens: 210 - dropped, isAbout: true });
    assert.deepEqual(contextUse(turns, 4, 3), { tokens: 3, isAbout: true });
  });
});

describe('dropping the oldest turns', () => {
  it('begins the rest with a question of the user, not with results of tools', () => {
    const conversation = conversationOf(['One?', 'Two?']);
    const withResult = ask(conversation, 'r', SETTINGS, [{ callId: 'a', name: 'look', content: 'r' }]);
    assert.deepEqual(droppableCounts(withResult.turns, false), [2]);
    assert.deepEqual(droppableCounts(withResult.turns, true), [2, 6]);
    assert.deepEqual(droppableCounts([], true), []);
  });

  it('finds the least count that fits with few questions to main', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 60 }), async (length, least) => {
        const counts = Array.from({ length }, (_, index) => 2 * index + 2);
        let asked = 0;
        const found = await fewestDropped(counts, async (count) => {
          asked += 1;
          return count >= least;
        });
        assert.equal(found, counts.find((count) => count >= least) ?? null);
        assert.ok(asked <= 6, `${asked} times`);
      }),
    );
  });

  it('leaves room for an answer, but never most of the context', () => {
    assert.deepEqual(
      [answerRoom(32_768, null), answerRoom(32_768, 20), answerRoom(800, null), answerRoom(4, 9)],
      [512, 20, 100, 1],
    );
  });

  it('is of the shown turns, and asks for the question that main refused', () => {
    const conversation = withNotSent(conversationOf(['One?', 'Two?']), 2);
    assert.equal(droppedTurns(conversation), 2);
    assert.equal(droppedTurns(withNotSent(conversation, 0)), 0);
    assert.equal(droppedTurns(withNotSent(conversation, 3)), 2, 'the last question was asked again');
    assert.equal(droppedTurns(withNotSent(conversation, 4)), 4);
    assert.deepEqual(
      [4, 2, 0].map((droppedTurns) => droppedBefore({ droppedTurns }, 3)),
      [2, 2, 0],
    );
    assert.equal(tooLongQuestion(conversation), null);
    const refused = changeAnswer(conversation, 4, (answer) => ({ ...answer, errorCode: PROMPT_TOO_LONG }));
    assert.equal(tooLongQuestion(refused)?.text, 'Two?');
  });

  it("counts by Anthropic's dialect, with calls, results and tools", () => {
    const tool = { type: 'function', function: { name: 'look', description: 'looks', parameters: { type: 'object' } } };
    const call = (id: string, given: string): object => ({
      id,
      type: 'function',
      function: { name: 'look', arguments: given },
    });
    const body = countBody(
      'demo',
      [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Look!' },
        { role: 'assistant', content: null, tool_calls: [call('a', '{"at":1}'), call('b', '{"at')] as never },
        { role: 'tool', content: 'a fox', tool_call_id: 'a' },
      ],
      { tools: [tool], thinking: false },
    );
    assert.deepEqual(body, {
      model: 'demo',
      system: 'Be brief.',
      messages: [
        { role: 'user', content: 'Look!' },
        {
          role: 'assistant',
          content: [
            { type: 'tool_use', id: 'a', name: 'look', input: { at: 1 } },
            { type: 'tool_use', id: 'b', name: 'look', input: { arguments: '{"at' } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'a fox' }] },
      ],
      tools: [{ name: 'look', description: 'looks', input_schema: { type: 'object' } }],
      thinking: { type: 'disabled' },
    });
  });
});

describe('the texts of settings', () => {
  const problem = (change: Partial<TypedSettings>, name: keyof TypedSettings): string =>
    settingProblem({ ...DEFAULT_SETTINGS, ...change }, name);

  it('are refused in words where they are wrong', () => {
    assert.match(problem({ logitBias: '{"a": 1}' }, 'logitBias'), /"a": give a token's id/);
    assert.match(problem({ logitBias: '{"1": 101}' }, 'logitBias'), /from -100 to 100/);
    assert.match(problem({ logitBias: '[1]' }, 'logitBias'), /give a JSON object/);
    assert.match(
      problem({ templateVariables: '{' }, 'templateVariables'),
      /this is no JSON: check it near character 2$/,
    );
    assert.match(problem({ format: 'schema' }, 'schema'), /give a schema/);
    assert.equal(problem({ schema: '{' }, 'schema'), '', 'it is not sent');
    assert.match(problem({ tools: '[{}]' }, 'tools'), /tool 1 has no name/);
    assert.match(problem({ tools: '{"name": "a b"}' }, 'tools'), /letters, digits/);
    assert.match(problem({ tools: JSON.stringify(Array(129).fill({ name: 'x' })) }, 'tools'), /129 tools/);
    assert.match(problem({ toolChoice: 'look' }, 'toolChoice'), /no tool has the name "look"/);
    assert.match(problem({ stop: '"x' }, 'stop'), /must be a JSON text/);
    assert.match(problem({ stop: 'x\n'.repeat(65) }, 'stop'), /65 texts/);
    assert.match(problem({ topK: '1.5' }, 'topK'), /give a whole number from 0 to \d+, or nothing/);
  });

  it('are taken in the form of the API, too', () => {
    const settings = chatSettings({
      ...DEFAULT_SETTINGS,
      stop: 'END\n"\\n\\n"',
      format: 'schema',
      schema: '{"type": "object"}',
      tools: '[{"type": "function", "function": {"name": "look"}}, {"name": "go"}]',
    });
    assert.deepEqual(settings.stop, ['END', '\n\n']);
    assert.deepEqual(settings.responseFormat, {
      type: 'json_schema',
      json_schema: { name: 'answer', schema: { type: 'object' } },
    });
    assert.deepEqual(
      settings.tools.map(({ function: called }) => called),
      [{ name: 'look' }, { name: 'go' }],
    );
  });

  it('come back from a storage as far as they are whole', () => {
    assert.deepEqual(storedSettings(null), DEFAULT_SETTINGS);
    assert.deepEqual(storedSettings('x'), DEFAULT_SETTINGS);
    const stored = { topK: '40', thinking: 'perhaps', seed: 7, other: 'x', toolChoice: 'look' };
    assert.deepEqual(storedSettings(stored), { ...DEFAULT_SETTINGS, topK: '40', toolChoice: 'look' });
  });

  it('have the words of main beside the field that it refused, until that is changed', () => {
    const typed = { ...DEFAULT_SETTINGS, format: 'schema', schema: '{"if": 1}' };
    const answer = { error: 'no if', errorField: 'response_format.json_schema', settings: chatSettings(typed) };
    assert.deepEqual(settingRefusal(typed, answer), { name: 'schema', words: 'no if' });
    assert.equal(settingRefusal({ ...typed, schema: '{}' }, answer), null);
    assert.equal(settingRefusal(typed, { ...answer, errorField: 'messages[0]' }), null);
    assert.equal(settingRefusal(typed, null), null);
    assert.deepEqual(
      [settingOfField('tools[0]'), settingOfField('logit_bias.5'), settingOfField('')],
      ['tools', 'logitBias', null],
    );
  });
});

describe('files in a question', () => {
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

  it('are texts in UTF-8 or UTF-16, and nothing else', () => {
    assert.deepEqual(readTextFile('a', bytes('Grüße\t🦊\r\n')), { text: 'Grüße\t🦊\r\n' });
    assert.deepEqual(readTextFile('a', Uint8Array.of(0xff, 0xfe, 0x41, 0)), { text: 'A' });
    for (const wrong of [Uint8Array.of(0x41, 0), Uint8Array.of(0xff, 0xd8, 0xff, 0)]) {
      assert.match((readTextFile('a.png', wrong) as { problem: string }).problem, /^a\.png is no text/);
    }
    const latin = readTextFile('a.txt', Uint8Array.of(0xe9, 0x41)) as { problem: string };
    assert.match(latin.problem, /^a\.txt is not in UTF-8 or UTF-16: save it in UTF-8/);
    assert.deepEqual(readTextFile('a', new Uint8Array()), { problem: 'a is empty.' });
  });

  it('stand in a fence that nothing in them ends', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('`', 'a', '\n', '```', ' ')), (parts) => {
        const text = parts.join('');
        const lines = fencedFile('x.ts', text).split('\n');
        const fence = (lines[1] ?? '').replace(/ts$/, '');
        assert.match(fence, /^`{3,}$/);
        assert.equal(lines.slice(2, -2).join('\n'), text.replace(/\n$/, ''));
        assert.equal(lines.slice(2).filter((line) => line.trim().startsWith(fence)).length, 1);
      }),
    );
    assert.match(fencedFile('a`\nb', 'x'), /^File `a b`:\n/);
  });

  it('begin on a line of their own, in place of what is selected', () => {
    assert.equal(withBlock('see THIS now', 4, 8, 'B\n'), 'see \nB\n now');
    assert.equal(withBlock('', 0, 0, 'B\n'), 'B\n');
  });
});

describe('the arguments of a call', () => {
  it('have one member a line, and the same value', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        assert.deepEqual(JSON.parse(indentedJson(text) ?? ''), JSON.parse(text));
      }),
    );
    assert.equal(indentedJson('{"a":[1,{}],"b":"{,"}'), '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "{,"\n}');
    assert.equal(indentedJson('{"a": 12345678901234567890}'), '{\n  "a": 12345678901234567890\n}');
    assert.equal(indentedJson('{"a": 1'), null);
  });
});
