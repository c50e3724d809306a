/** A route as registered. Its path may have parameters (`/v1/models/:model`). */
export interface RegisteredRoute {
  readonly method: string;
  readonly path: string;
}

/** Methods that are served at a path, sorted. */
export function allowedMethods(routes: readonly RegisteredRoute[], path: string): string[] {
  const plain = path.replace(/\/+$/, '') || '/';
  const methods = routes.filter((route) => patternOf(route.path).test(plain)).map(({ method }) => method);
  return [...new Set(methods)].sort();
}

function patternOf(path: string): RegExp {
  const parts = path.split('/').map((part) => {
    if (part.startsWith(':')) return '[^/]+';
    if (part === '*') return '.*';
    return part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${parts.join('/')}$`);
}
