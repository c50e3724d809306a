/** A registry of npm's protocol for the tarballs of one release. It knows their packages and no others, and nothing leaves the machine. */
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

export interface PackageRegistry {
  url: string;
  /** The paths that npm asked for, in order. */
  asked: readonly string[];
  close(): Promise<void>;
}

interface Tarball {
  file: string;
  bytes: Buffer;
  manifest: { name: string; version: string };
}

/** Offers each tarball (*.tgz) of the folders as the one version of its package. */
export async function startPackageRegistry(...folders: string[]): Promise<PackageRegistry> {
  const tarballs = (await Promise.all(folders.map(readTarballs))).flat();
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '/').slice(1);
    asked.push(path);
    const wanted = tarballs.find(({ file, manifest }) => path === manifest.name || path === `-/${file}`);
    if (wanted === undefined) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":"Not found"}');
    } else if (path === wanted.manifest.name) {
      const about = JSON.stringify(packageDocument(wanted, `http://${request.headers.host ?? ''}`));
      response.writeHead(200, { 'content-type': 'application/json' }).end(about);
    } else {
      response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(wanted.bytes);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${port}/`, asked, close };
}

function packageDocument({ file, bytes, manifest }: Tarball, base: string): object {
  const { name, version } = manifest;
  const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
  const dist = { tarball: `${base}/-/${file}`, integrity };
  return { name, 'dist-tags': { latest: version }, versions: { [version]: { ...manifest, dist } } };
}

async function readTarballs(folder: string): Promise<Tarball[]> {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.tgz'));
  return Promise.all(files.map(async (file) => readTarball(folder, file)));
}

async function readTarball(folder: string, file: string): Promise<Tarball> {
  const bytes = await readFile(join(folder, file));
  const manifest = JSON.parse(fileInTar(gunzipSync(bytes), 'package/package.json')) as Tarball['manifest'];
  return { file, bytes, manifest };
}

/** The text of one file in a tar archive (ustar: a header of 512 bytes before each file, whose content is filled up to 512 bytes). */
function fileInTar(archive: Buffer, path: string): string {
  const blockBytes = 512;
  for (let at = 0; at + blockBytes <= archive.length;) {
    const header = archive.subarray(at, at + blockBytes);
    const name = header.toString('utf8', 0, 100).replace(/\0.*$/s, '');
    const sizeBytes = Number.parseInt(header.toString('utf8', 124, 136), 8) || 0;
    at += blockBytes;
    if (name === path) return archive.toString('utf8', at, at + sizeBytes);
    at += Math.ceil(sizeBytes / blockBytes) * blockBytes;
  }
  throw new Error(`the tarball has no ${path}`);
}
