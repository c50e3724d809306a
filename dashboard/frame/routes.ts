import { useEffect, useState } from 'preact/hooks';

export const ROUTES = ['cluster', 'token', 'time', 'chat'] as const;
export type Route = (typeof ROUTES)[number];

export const ROUTE_TITLES: Record<Route, string> = {
  cluster: 'Cluster',
  token: 'A token',
  time: 'Over time',
  chat: 'Chat',
};

export function routeOf(hash: string): Route {
  const name = hash.replace(/^#/, '').split('/')[0];
  return ROUTES.find((route) => route === name) ?? 'cluster';
}

/** The view that the address names, and names again when it changes. */
export function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const follow = (): void => setRoute(routeOf(location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  return route;
}
