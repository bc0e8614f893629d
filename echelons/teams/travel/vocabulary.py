"""What each agent of the travel team says that it can do, in the words that people use.

``team`` declares these as capabilities; superiors and the offline planner match the words
of a task against them. Only what the tools can answer stands here, so no trains, no fares
and no beaches. Forms of one word ("fly", "flights", "flying") need only one entry where
they have one stem.
"""

from __future__ import annotations

from collections.abc import Mapping


def _rated(levels: Mapping[float, str]) -> Mapping[str, float]:
    return {
        word.strip(): confidence
        for confidence, listed in levels.items()
        for word in listed.split(",")
    }


# A trip needs a way there and a bed, whatever else it is about.
_TRIP = "trip, travel, holiday, vacation, journey, getaway, honeymoon, itinerary"

FLIGHTS = _rated(
    {
        0.95: "flights, flying, fly, airports, flew, flown",
        0.8: "plane, airplane, aeroplane, airline, aviation, iata, distance, nonstop",
        0.7: _TRIP,
        0.6: "airfare, layover, stopover, arrival, departure, jet",
    }
)

HOTELS = _rated(
    {
        0.95: "hotels, accommodation, lodging, stay",
        0.85: "place to stay, inn, ryokan, room, suite, bed, sleep, overnight, hostel, guesthouse",
        0.7: _TRIP,
        0.6: "neighbourhood, neighborhood, district, quarter, area, resort, check in",
    }
)

EXPERIENCES = _rated({0.9: "activities, experiences", 0.7: "things to do"})

RESTAURANTS = _rated(
    {
        0.95: "restaurants, food, dining, eat, cuisine, dishes, dine",
        0.9: "dinner, lunch, breakfast, brunch, supper, meal, gastronomy, culinary, foodie,"
        "street food, specialities, specialties, table, reserve a table, eatery",
        0.85: "pizza, pasta, sushi, tapas, ramen, noodles, seafood, fish, oysters, steak, meat,"
        "tacos, cheese, bread, pastry, cake, dessert, sweets, chocolate, ice cream, gelato, soup,"
        "sandwich, burger, curry, barbecue, vegetarian, vegan, halal, kosher, risotto, croissant,"
        "bakery, delicatessen, pizzeria, trattoria, osteria, bistro, brasserie, bouchon, tavern,"
        "pub, bar, cafe, coffee, tea, wine, beer, whisky, cocktails, drinks, delicious, tasty,"
        "tasting, gourmet, chef, cooking, taste, hungry, kaiseki, paella, schnitzel, churros",
        0.7: "reservation, reserve, food market, markets, michelin, snack, spicy, ingredients,"
        "local flavours, flavors, izakaya, beer garden, coffee house",
    }
)

TOURS = _rated(
    {
        0.95: "tours, sightseeing, museums, sights, guided, guides, attractions",
        0.9: "art, gallery, monuments, landmarks, history, historic, historical, architecture,"
        "ruins, archaeology, archaeological, castle, palace, cathedral, church, basilica, temple,"
        "shrine, heritage, unesco, painting, sculpture, exhibits, ancient, renaissance, medieval",
        0.8: "walking, walk, hiking, hike, excursion, outing, parks, gardens, views, viewpoint,"
        "mosaic, frescoes, baroque, gothic, impressionism, antiquities, science, aquarium, tower,"
        "bridge, fortress, pyramids, colosseum, louvre, prado, acropolis, pompeii, explore",
        0.6: "culture, outdoors, nature, canals, catacombs, volcano, island, manga, design",
    }
)

EVENTS = _rated(
    {
        0.95: "events, concerts, opera, festivals, theatre, theater, performances",
        0.9: "music, musical, ballet, jazz, orchestra, symphony, carnival, parade, gig,"
        "philharmonic, flamenco, fado, kabuki, bunraku, recital, cabaret, broadway, mariachi,"
        "oktoberfest, mardi gras, matsuri, biennale, celebrations, fireworks",
        0.8: "dance, dancing, film, cinema, entertainment, nightlife, drama, comedy, singing,"
        "singer, band, sumo, wrestling, marathon, stage, venue, premiere, puppets, marionettes",
        0.6: "shows, culture, sport, party, club, fair, performers, evening",
    }
)
