import assert from 'node:assert/strict';
import { parseHttpAddress } from '../../shared/settings/http-address.js';
import { parseClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { HttpSettings } from '../../shared/settings/node-settings.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { DaemonFlags } from '../../shared/settings/settings-table.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';

const HOST = { hostname: 'box1.lan', addresses: [], processId: 42, stateHome: '/state' };

function httpOf(source: string, flags: DaemonFlags = {}): HttpSettings | null {
  const config = parseClusterConfig(`model: p\n${source}`, '/etc/odmoe/cluster.yaml');
  return resolveNodeSettings('main', config, flags, HOST).main.http;
}

describe('the address that serves HTTP clients', () => {
  for (const [text, expected] of [
    ['off', 'off'],
    ['127.0.0.1:7680', { host: '127.0.0.1', port: 7680 }],
    ['0.0.0.0:0', { host: '0.0.0.0', port: 0 }],
    ['box.lan:80', { host: 'box.lan', port: 80 }],
    ['[::1]:7680', { host: '::1', port: 7680 }],
    ['7680', null],
    [':7680', null],
    ['127.0.0.1', null],
    ['127.0.0.1:65536', null],
    ['127.0.0.1:-1', null],
    ['::1:7680', null],
    ['http://127.0.0.1:7680', null],
    ['127.0.0.1:7680/', null],
    ['no', null],
    ['', null],
  ] as const) {
    it(`the HTTP address is read from the text ${JSON.stringify(text)}`, () =>
      assert.deepEqual(parseHttpAddress(text), expected));
  }

  it('is a loopback address when nobody sets one', () => {
    assert.deepEqual(httpOf(''), {
      host: '127.0.0.1',
      port: 7680,
      isAddressGiven: false,
      hosts: [],
      origins: [],
      apiKeysPath: null,
    });
  });

  it('comes from cluster.yaml, and flags override it', () => {
    const source = `main:
  http: "[::1]:80"
  http_hosts: [chat.example.org]
  http_origins: [https://chat.example.org, "*"]
  api_keys: keys/main`;
    assert.deepEqual(httpOf(source), {
      host: '::1',
      port: 80,
      isAddressGiven: true,
      hosts: ['chat.example.org'],
      origins: ['https://chat.example.org', '*'],
      apiKeysPath: '/etc/odmoe/keys/main',
    });
    const flagged = httpOf(source, { http: { host: '0.0.0.0', port: 0 }, apiKeys: '/home/keys' });
    assert.deepEqual([flagged?.host, flagged?.port, flagged?.apiKeysPath], ['0.0.0.0', 0, '/home/keys']);
    assert.equal(httpOf(source, { http: 'off' }), null);
    assert.equal(httpOf('main: {http: off}'), null);
    assert.equal(httpOf('main: {http: off}', { http: { host: '127.0.0.1', port: 1 } })?.port, 1);
  });

  it('has keys that main makes where auto is said, and a file of that name by its path', () => {
    assert.equal(httpOf('main: {api_keys: auto}')?.apiKeysPath, 'auto');
    assert.equal(httpOf('main: {api_keys: keys}', { apiKeys: 'auto' })?.apiKeysPath, 'auto');
    assert.equal(httpOf('main: {api_keys: ./auto}')?.apiKeysPath, '/etc/odmoe/auto');
  });

  it('counts as set when a user sets the default value', () => {
    assert.equal(httpOf('main: {http: "127.0.0.1:7680"}')?.isAddressGiven, true);
  });

  for (const [what, source, message] of [
    ['an address without a port', 'main: {http: localhost}', /:2:14: main\.http: expected HOST:PORT/],
    ['a number', 'main: {http: 7680}', /main\.http: expected HOST:PORT/],
    ['a host with a port', 'main: {http_hosts: ["host:80"]}', /main\.http_hosts\[0\]: expected a host name/],
    ['an origin with a path', 'main: {http_origins: ["https://a/b"]}', /main\.http_origins\[0\]: expected an origin/],
    ['an origin that is a name', 'main: {http_origins: [example.org]}', /main\.http_origins\[0\]: expected an origin/],
    ['no file of keys', 'main: {api_keys: ""}', /main\.api_keys: expected a file of API keys/],
  ] as const) {
    it(`the settings of the HTTP server refuse ${what}`, () =>
      assert.throws(() => httpOf(source), { code: 'CONFIG_INVALID', message }));
  }

  it('can be set by flags of main, and of no other command', () => {
    const main = parseDaemonFlags('main', ['--model', '/p', '--http', '0.0.0.0:8080', '--api-keys', '/keys']);
    assert.ok(main.kind === 'run');
    const { http } = main.settings.main;
    assert.deepEqual(
      [http?.host, http?.port, http?.isAddressGiven, http?.apiKeysPath],
      ['0.0.0.0', 8080, true, '/keys'],
    );
    const off = parseDaemonFlags('main', ['--model', '/p', '--http', 'off']);
    assert.ok(off.kind === 'run' && off.settings.main.http === null);
    assert.throws(() => parseDaemonFlags('main', ['--model', '/p', '--http', '8080']), { code: 'USAGE' });
    assert.throws(() => parseDaemonFlags('worker', ['--http', 'off']), { code: 'USAGE' });
  });
});
