import { poolsOf } from './cache-policies.js';
import type { ClusterConfig } from './cluster-config.js';

/** An error that no single value shows: its place and its description. */
export interface Contradiction {
  path: (string | number)[];
  message: string;
}

/** Combinations of valid values that cannot work. Pure. */
export function findContradictions(config: ClusterConfig): Contradiction[] {
  return [
    ...duplicateIds(config),
    ...sharedAddresses(config),
    ...surplusMains(config),
    ...misplacedKeys(config),
    ...staticWithoutNodes(config),
    ...oversizedValues(config),
    ...contradictoryPools(config),
    ...uselessSettings(config),
  ];
}

function duplicateIds({ nodes }: ClusterConfig): Contradiction[] {
  return nodes.flatMap((node, index) => {
    const first = nodes.findIndex((other) => other.id === node.id);
    if (first === index) return [];
    return [{ path: ['nodes', index, 'id'], message: `"${node.id}" is already the id of nodes[${first}]` }];
  });
}

function sharedAddresses({ nodes }: ClusterConfig): Contradiction[] {
  const address = (index: number) => `${nodes[index]?.address.host}:${nodes[index]?.address.port}`;
  return nodes.flatMap((node, index) => {
    const first = nodes.findIndex((_, other) => address(other) === address(index));
    if (first === index) return [];
    const key = node.port === undefined ? [] : ['port'];
    const message = `${address(index)} is already the address of nodes[${first}] (${nodes[first]?.id}): give each its own port`;
    return [{ path: ['nodes', index, ...key], message }];
  });
}

function surplusMains({ nodes }: ClusterConfig): Contradiction[] {
  return (['main', 'shadow'] as const).flatMap((role) => {
    const first = nodes.findIndex((node) => node.role === role);
    return nodes.flatMap((node, index) =>
      node.role === role && index !== first
        ? [{ path: ['nodes', index, 'role'], message: `a cluster has one ${role}, and nodes[${first}] is it` }]
        : [],
    );
  });
}

function misplacedKeys({ nodes }: ClusterConfig): Contradiction[] {
  return nodes.flatMap((node, index) =>
    node.role === 'worker'
      ? []
      : (['slots', 'cache'] as const)
          .filter((key) => node[key] !== undefined)
          .map((key) => ({
            path: ['nodes', index, key],
            message: `only a worker has ${key === 'cache' ? 'a cache' : key}, and ${node.id} is a ${node.role}`,
          })),
  );
}

function staticWithoutNodes({ discovery, nodes }: ClusterConfig): Contradiction[] {
  if (discovery.provider !== 'static') return [];
  const path = ['discovery', 'provider'];
  if (nodes.length === 0) {
    return [{ path, message: 'static discovery finds only the nodes listed, and none is: list them under nodes' }];
  }
  if (!nodes.some((node) => node.role === 'main')) {
    return [
      { path: ['nodes'], message: 'static discovery needs the main node among the nodes, and none has role main' },
    ];
  }
  return [];
}

function oversizedValues({ main, batching, drafting }: ClusterConfig): Contradiction[] {
  if (batching.enabled && drafting.rows !== 'auto' && drafting.rows > batching.max_rows) {
    const message = `a pass has ${batching.max_rows} rows (batching.max_rows), which a token and its drafts do not fit into`;
    return [{ path: ['drafting', 'rows'], message }];
  }
  if (main.mini_batch_rows <= main.prefill_rows) return [];
  const message = `a mini-batch of ${main.mini_batch_rows} rows is more than a prefill pass has (main.prefill_rows: ${main.prefill_rows})`;
  return [{ path: ['main', 'mini_batch_rows'], message }];
}

/** Values that have no effect because of another value. */
function uselessSettings({ placement, prediction, batching, main, nodes }: ClusterConfig): Contradiction[] {
  const useless: Contradiction[] = [];
  const refused = nodes.findIndex(({ role }) => role === 'worker');
  if (main.experts === 'local' && refused >= 0) {
    const message = `main refuses workers where it runs all experts itself (main.experts: local): leave ${nodes[refused]?.id} out, or say both`;
    useless.push({ path: ['nodes', refused, 'role'], message });
  }
  if (!batching.enabled && batching.max_delay_ms !== 'auto') {
    const message = 'prompts delay no answers where each pass has one sequence (batching.enabled: false)';
    useless.push({ path: ['batching', 'max_delay_ms'], message });
  }
  if (placement.replicas > 1 && placement.homes !== 'strict') {
    useless.push({ path: ['placement', 'replicas'], message: 'only placement.homes: strict has copies of experts' });
  }
  if (prediction.layers_ahead > 1 && prediction.source !== 'router-ahead') {
    const message = 'only prediction.source: router-ahead asks routers of later layers';
    useless.push({ path: ['prediction', 'layers_ahead'], message });
  }
  return useless;
}

function contradictoryPools({ worker, nodes }: ClusterConfig): Contradiction[] {
  const { pools, cache = 0, cache_policy: policy = 'planned' } = worker;
  if (pools === undefined) return [];
  const path = ['worker', 'pools'];
  const cacheOf = nodes.find((node) => (node.cache ?? 0) > 0);
  if (cache > 0 || cacheOf !== undefined) {
    const where = cache > 0 ? 'worker.cache' : `the cache of ${cacheOf?.id ?? ''}`;
    return [{ path, message: `pools say how much is cached, and so does ${where}: leave one out` }];
  }
  if (policy === 'planned') return [];
  const wanted = (['compressed', 'sign_mantissa', 'exponent'] as const).filter((pool) => pools[pool] > 0);
  const keepsCompressed = poolsOf(policy).includes('compressed');
  const parts = wanted.filter((pool) => pool !== 'compressed' || !keepsCompressed);
  const message = `cache_policy ${policy} keeps ${keepsCompressed ? 'full and compressed' : 'full'} experts only`;
  return parts.map((pool) => ({
    path: [...path, pool],
    message: `${message}: set this to 0 or the policy to planned`,
  }));
}
