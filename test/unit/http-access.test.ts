import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ApiKey, ApiKeys, keyOf, ownKey, readApiKeys } from '../../http-api/access/api-keys.js';
import { KeySessions, MAX_SESSIONS, SESSION_AGE_S, sessionTokenOf } from '../../http-api/access/key-sessions.js';
import { isServedHost, servedHosts } from '../../http-api/access/host-check.js';
import { isAdmittedOrigin, preflightHeaders } from '../../http-api/access/admit-request.js';
import { requireKeysForOthers } from '../../http-api/start-http-api.js';
import { RUNTIME } from '../wall.js';

function clientKeys(...texts: string[]): ApiKey[] {
  return texts.map((text) => ({ text, role: 'client' }));
}

function admits(keys: ApiKeys, key: string | null): boolean {
  return keys.ownerOf(key) !== null;
}

describe('hosts that HTTP requests name:', () => {
  const hosts = servedHosts('Box.lan', ['Chat.Example.org', 'full.example.org.']);
  for (const header of [
    'localhost',
    'localhost:7680',
    'LOCALHOST:1',
    'localhost.',
    'box',
    'box.lan:80',
    'Box.local',
    'chat.example.org:443',
    'full.example.org',
    '127.0.0.1',
    '127.0.0.1:7680',
    '192.168.1.20',
    '[::1]',
    '[::1]:7680',
    '[fe80::1]',
  ]) {
    it(`a request to the host ${header} is served`, () => assert.equal(isServedHost(header, hosts), true));
  }
  for (const header of [
    'evil.example',
    'evil.example:7680',
    'localhost.evil.example',
    'box.evil',
    'xlocalhost',
    'chat.example.org.evil',
    '',
    ':7680',
    'localhost:7680:1',
    'localhost/',
    'localhost@evil.example',
    '[evil]',
    '[::1',
    '::1',
    '127.0.0.1.evil',
    '127.1',
    '0x7f000001',
    '2130706433',
    'localhost:port',
    'localhost evil',
  ]) {
    it(`a request to the host ${JSON.stringify(header)} is refused`, () =>
      assert.equal(isServedHost(header, hosts), false));
  }
});

describe('API keys', () => {
  const keys = new ApiKeys(clientKeys('first-key-1', 'second-key-2'));

  it('admit a client that sends one of them, and no other client', () => {
    for (const key of ['first-key-1', 'second-key-2']) assert.equal(admits(keys, key), true);
    for (const key of ['first-key-2', 'first-key-', 'first-key-11', 'First-key-1', '', null]) {
      assert.equal(admits(keys, key), false, `${key}`);
    }
  });

  it('admit every client when there are none', () => {
    for (const key of ['any', '', null]) assert.equal(admits(new ApiKeys([]), key), true);
  });

  it('make an operator of those who send one with that role, and of nobody else', () => {
    const some = new ApiKeys([...clientKeys('first-key-1'), { text: 'second-key-2', role: 'operator' }]);
    assert.deepEqual([some.ownerOf('first-key-1')?.role, some.ownerOf('second-key-2')?.role], ['client', 'operator']);
    assert.deepEqual([some.hasOperator, keys.hasOperator], [true, false]);
    for (const key of ['any', '', null]) assert.deepEqual(new ApiKeys([]).ownerOf(key), { client: '', role: 'client' });
  });

  for (const [headers, key] of [
    [{ authorization: 'Bearer abc' }, 'abc'],
    [{ authorization: 'bearer  abc ' }, 'abc'],
    [{ 'x-api-key': 'abc' }, 'abc'],
    [{ authorization: 'Basic abc', 'x-api-key': 'def' }, 'def'],
    [{ authorization: 'Bearer a b' }, null],
    [{ authorization: 'Bearer' }, null],
    [{}, null],
  ] as const) {
    it(`an API key is read from the headers ${JSON.stringify(headers)}`, () => assert.equal(keyOf(headers), key));
  }

  describe('from a file', () => {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-keys-'));
    const path = join(directory, 'keys');
    const warnings: string[] = [];
    const log = { warn: (event: string) => void warnings.push(event) };
    after(() => rmSync(directory, { recursive: true, force: true }));
    beforeEach(() => warnings.splice(0));

    const write = (text: string, mode = 0o600): void => {
      writeFileSync(path, text);
      chmodSync(path, mode);
    };

    it('stand one on a line; blank lines and comments are ignored', async () => {
      write('# who may ask\n\nfirst-key-1\r\n  second-key-2  \n   # old\n#third-key-3\n');
      const read = await readApiKeys(path, { ODMOE_API_KEYS: 'fourth-key-4, fifth-key-5,' }, log);
      assert.equal(read.count, 4);
      for (const key of ['first-key-1', 'second-key-2', 'fourth-key-4', 'fifth-key-5']) assert.ok(admits(read, key));
      assert.equal(admits(read, 'third-key-3'), false);
      assert.deepEqual(warnings, []);
    });

    it('have a role behind them, or may ask alone', async () => {
      write('first-key-1\nsecond-key-2 role: operator\n  third-key-3\trole:operator  \nthird-key-3 role: operator\n');
      const read = await readApiKeys(path, { ODMOE_API_KEYS: 'fourth-key-4, fifth-key-5 role: operator' }, log);
      const roles = ['first-key-1', 'second-key-2', 'third-key-3', 'fourth-key-4', 'fifth-key-5'].map(
        (key) => read.ownerOf(key)?.role,
      );
      assert.deepEqual(roles, ['client', 'operator', 'operator', 'client', 'operator']);
      assert.equal(read.ownerOf('second-key-2 role: operator'), null);
    });

    it('are refused where one stands with a role and without', async () => {
      write('first-key-1\n');
      const read = readApiKeys(path, { ODMOE_API_KEYS: 'first-key-1 role: operator' }, log);
      await assert.rejects(read, { code: 'CONFIG_INVALID', message: /stands twice, once with "role: operator"/ });
    });

    it('cause a warning where every user can read them', async () => {
      write('first-key-1\n', 0o644);
      assert.equal((await readApiKeys(path, {}, log)).count, 1);
      assert.equal(warnings.length, 1);
    });

    for (const [what, text] of [
      ['too short a key', 'first-key-1\nshort\n'],
      ['too long a key', `${'k'.repeat(513)}\n`],
      ['a key with a space', 'first key 1\n'],
      ['a key that is not ASCII', 'schlüssel-1\n'],
      ['a role that there is not', 'first-key-1 role: main\n'],
      ['a role without a name', 'first-key-1 role:\n'],
      ['a role alone', 'role: operator\n'],
      ['a role alone, without a space', 'role:operator\n'],
      ['no key', '# none\n\n'],
      ['nothing', ''],
      ['too many keys', Array.from({ length: 1025 }, (_, index) => `key-number-${index}`).join('\n')],
      ['more than is read', `# ${'x'.repeat(1024 * 1024)}\nfirst-key-1\n`],
    ] as const) {
      it(`are refused with ${what}, and the answer has no key`, async () => {
        write(text);
        await assert.rejects(readApiKeys(path, {}, log), (error: { code: string; message: string }) => {
          assert.equal(error.code, 'CONFIG_INVALID');
          for (const key of ['short', 'first key', 'schlüssel', 'first-key-1']) assert.ok(!error.message.includes(key));
          return true;
        });
      });
    }

    it("are made by main once: one key of an operator, in a file for main's user alone", async () => {
      const own = join(directory, 'state');
      const made = await ownKey(own, RUNTIME, log);
      assert.match(made.text, /^[A-Za-z0-9_-]{32}$/);
      assert.equal(statSync(made.path).mode & 0o777, 0o600);
      assert.deepEqual(await ownKey(own, RUNTIME, log), made, 'a restart keeps it');
      assert.equal((await readApiKeys(made.path, {}, log)).ownerOf(made.text)?.role, 'operator');
      rmSync(made.path);
      assert.notEqual((await ownKey(own, RUNTIME, log)).text, made.text);
      writeFileSync(made.path, '');
      await assert.rejects(ownKey(own, RUNTIME, log), { code: 'CONFIG_INVALID', message: /holds no key/ });
    });

    it("are refused with the file's name where it does not exist", async () => {
      const missing = join(directory, 'missing');
      await assert.rejects(readApiKeys(missing, {}, log), { code: 'CONFIG_INVALID', message: /missing/ });
      await assert.rejects(readApiKeys(directory, {}, log), { code: 'CONFIG_INVALID', message: /no regular file/ });
      await assert.rejects(readApiKeys('/dev/null', {}, log), { message: /no regular file/ });
    });
  });

  it('are required where other machines can reach the server', () => {
    const settings = { port: 7680, isAddressGiven: true, hosts: [], origins: [], apiKeysPath: null };
    const none = new ApiKeys([]);
    for (const host of ['127.0.0.1', 'localhost', '::1', '127.8.8.8'])
      requireKeysForOthers({ ...settings, host }, none);
    for (const host of ['0.0.0.0', '192.168.1.20', '::', 'box.lan']) {
      assert.throws(() => requireKeysForOthers({ ...settings, host }, none), {
        code: 'CONFIG_INVALID',
        message: /--api-keys.*ODMOE_API_KEYS/s,
      });
      requireKeysForOthers({ ...settings, host }, keys);
    }
  });
});

describe('origins of web pages:', () => {
  const listed = ['https://chat.example.org', 'app://obsidian.md'];
  for (const [origin, host, admitted] of [
    ['https://chat.example.org', 'localhost:7680', true],
    ['app://obsidian.md', 'localhost:7680', true],
    ['http://localhost:7680', 'localhost:7680', true],
    ['https://localhost:7680', 'localhost:7680', true],
    ['http://localhost:3000', 'localhost:7680', false],
    ['http://chat.example.org', 'localhost:7680', false],
    ['https://chat.example.org.evil', 'localhost:7680', false],
    ['null', 'localhost:7680', false],
    ['http://undefined', undefined, false],
  ] as const) {
    it(`the origin ${origin} is ${admitted ? 'admitted' : 'refused'} at the host ${host}`, () =>
      assert.equal(isAdmittedOrigin(origin, host, listed), admitted));
  }

  it('"*" admits all origins', () => assert.equal(isAdmittedOrigin('null', 'localhost', ['*']), true));

  it('an origin gets the allowed headers that it asked for, where those are names', () => {
    const asked = 'authorization, x-stainless-os';
    assert.equal(preflightHeaders(asked)['access-control-allow-headers'], asked);
    assert.equal(
      preflightHeaders('a\u0001')['access-control-allow-headers'],
      preflightHeaders(undefined)['access-control-allow-headers'],
    );
  });
});

describe('browser sessions', () => {
  const clock = { ms: 0, ids: 0 };
  const runtime = { nowMs: () => clock.ms, randomId: () => `token-${(clock.ids += 1)}` };
  const keys = new ApiKeys(clientKeys('first-key-1', 'second-key-2'));
  const sessions = new KeySessions(keys, runtime);
  const begin = (key = 'first-key-1'): string => sessions.begin(key) ?? assert.fail('the key is right');
  const isOpen = (token: string | null | undefined): boolean => sessions.ownerOf(token ?? null) !== null;

  it('begin with a correct key alone, and end on request or by age', () => {
    assert.equal(sessions.begin('third-key-3'), null);
    const [first, second] = [begin(), begin()];
    for (const token of [first, second]) assert.equal(isOpen(token), true);
    for (const token of ['token-0', '', null]) assert.equal(isOpen(token), false);
    sessions.end(first);
    sessions.end('token-0');
    assert.deepEqual([isOpen(first), isOpen(second)], [false, true]);
    clock.ms += SESSION_AGE_S * 1000;
    assert.equal(isOpen(second), false);
  });

  it('belong to their first key, so that main is shared by keys as it is without cookies', () => {
    const [first, second] = [begin(), begin('second-key-2')];
    assert.deepEqual(sessions.ownerOf(first), keys.ownerOf('first-key-1'));
    assert.deepEqual(sessions.ownerOf(second), keys.ownerOf('second-key-2'));
    assert.notEqual(sessions.ownerOf(first)?.client, sessions.ownerOf(second)?.client);
  });

  it("have their key's role", () => {
    const ofOperator = new KeySessions(new ApiKeys([{ text: 'third-key-3', role: 'operator' }]), runtime);
    assert.equal(ofOperator.ownerOf(ofOperator.begin('third-key-3'))?.role, 'operator');
    assert.equal(sessions.ownerOf(begin())?.role, 'client');
  });

  it('are bounded: one more ends the oldest', () => {
    const tokens = Array.from({ length: MAX_SESSIONS + 1 }, () => begin());
    assert.deepEqual([isOpen(tokens[0]), isOpen(tokens[1])], [false, true]);
  });

  for (const [cookie, token] of [
    ['odmoe_session=abc-1', 'abc-1'],
    ['other=1; odmoe_session=abc; more=2', 'abc'],
    ['xodmoe_session=abc', null],
    ['odmoe_session=', null],
    ['odmoe_session=a b', null],
    [undefined, null],
  ] as const) {
    it(`the session token of ${cookie ?? 'no cookie'} is ${token}`, () =>
      assert.equal(sessionTokenOf(cookie === undefined ? {} : { cookie }), token));
  }
});
