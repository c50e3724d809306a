import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'yaml';
import { setupScript } from '../../cli/commands/setup.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const textOf = (path: string): string => readFileSync(join(packageRoot(), path), 'utf8');

interface Service {
  readonly hostname?: string;
  readonly command?: readonly string[];
}

describe('the shipped containers', () => {
  const services = (parse(textOf('compose.yaml'), { merge: true }) as { services: Record<string, Service> }).services;

  it('have the list of GPU sources, which the doctor reads', () => {
    assert.match(
      textOf('Dockerfile'),
      /^COPY --from=build \/opt\/odmoe\/native\/gpu-files\.json native\/gpu-files\.json$/m,
    );
  });

  it('say in words that the set-up is not in them', () => {
    const root = mkdtempSync(join(tmpdir(), 'odmoe-image-'));
    assert.throws(() => setupScript(root), { code: 'INSTALLATION_INCOMPLETE', message: /ODMOE_CUDA=on/ });
    assert.equal(setupScript(packageRoot()), join(packageRoot(), 'scripts/setup.mjs'));
    rmSync(root, { recursive: true });
  });

  it('pack on a host of one name, so that a lock of a killed container is taken over', () => {
    assert.equal(services['pack']?.hostname, 'pack');
  });

  it('are replaced by a rollout also where a pod never gets ready', () => {
    for (const file of ['base/main', 'base/shadow', 'worker/worker']) {
      const { spec } = parse(textOf(`deploy/k8s/${file}.yaml`), { merge: true }) as {
        spec: { podManagementPolicy?: string };
      };
      assert.equal(spec.podManagementPolicy, 'Parallel', file);
    }
  });

  it('name the hosts by which their clients ask', () => {
    const hostsOf = (flags: readonly string[]): readonly string[] | undefined => {
      const request = parseDaemonFlags('main', flags);
      return request.kind === 'run' ? request.settings.main.http?.hosts : undefined;
    };
    assert.deepEqual(hostsOf(services['main']?.command?.slice(1) ?? []), ['main.odmoe']);
    const flag = /- (--http-hosts=.*)$/m.exec(textOf('deploy/k8s/base/main.yaml'))?.[1] ?? '';
    const hosts = hostsOf(['--model', '/p', flag.replaceAll('$(POD_NAMESPACE)', 'odmoe')]);
    assert.deepEqual(hosts?.slice(0, 2), ['odmoe-http', 'odmoe-http.odmoe']);
    assert.throws(() => hostsOf(['--model', '/p', '--http-hosts', 'host:80']), { code: 'USAGE' });
  });
});
