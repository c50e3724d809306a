import assert from 'node:assert/strict';
import { askedMain } from '../../cli/client/asked-main.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import { addressNodes } from '../../shared/settings/cluster-config.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';

const unread = (): never => assert.fail('the configuration is not read');
const NOTHING = { address: null, cluster: null, configured: null, interfaceAddress: null, path: null };

/** A configuration of the cluster "shelf". */
function configOf(provider: 'static' | 'mdns', mainHost?: string): ClusterConfig {
  const otherwise = defaultClusterConfig();
  const node = { id: 'm', role: 'main', ...(mainHost !== undefined && { host: mainHost }) } as const;
  const discovery = { ...otherwise.discovery, provider, interface: '10.0.0.9' };
  return { ...otherwise, cluster: 'shelf', path: '/home/a/cluster.yaml', discovery, nodes: addressNodes([node]) };
}

describe('the main that a command is to ask', () => {
  it('is that of --main, whatever the environment and the directory say', () => {
    const asked = askedMain({ main: 'box:7600', interface: '10.0.0.1' }, unread, { ODMOE_MAIN: 'other:1' });
    assert.deepEqual(asked, { ...NOTHING, address: 'box:7600', interfaceAddress: '10.0.0.1' });
    assert.throws(() => askedMain({ main: 'box' }, unread, {}), { code: 'USAGE', message: /^--main says "box": give/ });
  });

  it('is that of the environment, unless a flag names a cluster', () => {
    const variables = { ODMOE_MAIN: ' [fe80::1]:7600 ' };
    assert.deepEqual(askedMain({}, unread, variables), { ...NOTHING, address: '[fe80::1]:7600' });
    assert.equal(askedMain({ cluster: 'shelf' }, () => null, variables).address, null);
    assert.equal(askedMain({ config: 'x' }, () => configOf('static'), variables).address, null);
    assert.deepEqual(
      askedMain({}, () => null, { ODMOE_MAIN: '' }),
      NOTHING,
    );
    assert.throws(() => askedMain({}, unread, { ODMOE_MAIN: 'http://box' }), {
      code: 'USAGE',
      message: /^the variable ODMOE_MAIN says "http:\/\/box": give HOST:PORT/,
    });
  });

  it("is that of the configuration: at main's address under static discovery, else by the cluster's name", () => {
    const named = { ...NOTHING, cluster: 'shelf', interfaceAddress: '10.0.0.9', path: '/home/a/cluster.yaml' };
    const asked = (config: ClusterConfig) => askedMain({}, () => config, {});
    assert.deepEqual(asked(configOf('static', '10.0.0.5')), { ...named, configured: '10.0.0.5:7600' });
    assert.deepEqual(asked(configOf('static')), { ...named, configured: '127.0.0.1:7600' });
    assert.deepEqual(asked(configOf('mdns', '10.0.0.5')), named);
    assert.deepEqual(asked({ ...configOf('static'), nodes: [] }), named);
  });

  it('is of the cluster of --cluster, and a configuration of another one says nothing', () => {
    const config = configOf('static');
    assert.deepEqual(askedMain({ cluster: 'shelf' }, () => config, {}).configured, '127.0.0.1:7600');
    assert.deepEqual(
      askedMain({ cluster: 'other' }, () => config, {}),
      { ...NOTHING, cluster: 'other' },
    );
    assert.throws(() => askedMain({ cluster: 'other', config: 'shelf.yaml' }, () => config, {}), {
      code: 'USAGE',
      message: 'shelf.yaml is of cluster "shelf", and --cluster says "other": leave one out',
    });
  });
});
